"""A worker that tests step by hand."""


class ManualWorker:
    """A worker thread that works when it is told to."""

    def __init__(self):
        self.work = []

    def submit(self, work, done, failed):
        self.work.append((work, done, failed))

    def step(self):
        work, done, failed = self.work.pop(0)
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001
            failed(error)
        else:
            done(result)

"""The scene of sends: their requests to the scripted broker, and its refusals."""

from txbroker.wire.messages import Refused, Send


def sends(broker):
    return [request for request in broker.requests if type(request) is Send]


def refuse_once(broker, *names):
    """Refuse the next sends, one after another, with these errors."""
    left = list(names)

    def before(request, data):
        if type(request) is Send and left:
            return Refused(request.correlation, left.pop(0), "as told")
        return None

    broker.before = before

"""The claims on the logs, read from archive, journal and checkpoint; and the bytes of the logs.

``journal_reader`` and ``journal_fold`` are the audit's own reader and fold of the journal, and import neither the
journal's nor what stands on these: a second implementation is what makes the audit a proof. All else in Spark reads
through :mod:`journal.wal.reader`, :mod:`journal.check` and :mod:`journal.folds`.
"""

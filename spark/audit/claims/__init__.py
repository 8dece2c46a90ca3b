"""What is claimed of the logs, and by what: archive, journal, checkpoint; and their bytes.

``journal_reader`` and ``journal_fold`` are the audit's own reader and fold of the journal, and import neither the
journal's nor what stands on these: a second implementation is what makes the audit a proof. All else in Spark reads
through :mod:`journal.wal.reader`, :mod:`journal.check` and :mod:`journal.folds`.
"""

"""The corpus of recorded behaviour: dialogues with the broker, histories, damaged directories, each with its outcome.

:mod:`tests.corpus.dialogues` and :mod:`tests.corpus.histories` record answers and what is visible at the end. Of
damaged directories (``python -m tests.corpus --help``) :mod:`tests.corpus.worlds` makes the directories step by step,
:mod:`tests.corpus.places` names what lies in their files by the step that wrote it, :mod:`tests.corpus.damages`
damages a place, and :mod:`tests.corpus.verdicts` says what a start, a verification, a repair, a dump and a scrub make
of that. ``cases.json`` has each case with its verdict. Cases and verdicts name steps, files and kinds, never bytes,
LSNs or texts, so that most of them survive a change of formats.
"""

"""Making a damaged directory one that starts again: never inventing, never reordering, never in silence."""

from journal.repair.diagnosis import Diagnosis, diagnose
from journal.repair.execution import execute, is_unfinished, resume

__all__ = ["Diagnosis", "diagnose", "execute", "is_unfinished", "resume"]

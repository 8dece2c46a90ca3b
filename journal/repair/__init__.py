"""The repair makes a damaged data directory start again: it invents nothing, reorders nothing, and names every loss."""

from journal.repair.diagnosis import Diagnosis, diagnose
from journal.repair.execution import execute, is_unfinished, resume

__all__ = ["Diagnosis", "diagnose", "execute", "is_unfinished", "resume"]

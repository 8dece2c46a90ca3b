"""Tools for tests, of this project and of programs that embed the journal, that cut the power on purpose.

:class:`MemoryFilesystem` tells what a power cut or a killed process would leave; :class:`FaultFilesystem`
fails where a :class:`FaultPlan` says; :class:`ManualClock` stands still until it is moved. :class:`PowerCutDirectory`
is the first one's model over a real directory, for programs that are really killed.
"""

from journal.testing.clock import ManualClock
from journal.testing.directory import PowerCutDirectory
from journal.testing.faults import (
    CHANGES,
    Fault,
    FaultFile,
    FaultFilesystem,
    FaultPlan,
    Operation,
    PowerCut,
    cut_power_at,
)
from journal.testing.memory import SURVIVAL, MemoryFile, MemoryFilesystem

__all__ = [
    "CHANGES",
    "SURVIVAL",
    "Fault",
    "FaultFile",
    "FaultFilesystem",
    "FaultPlan",
    "ManualClock",
    "MemoryFile",
    "MemoryFilesystem",
    "Operation",
    "PowerCut",
    "PowerCutDirectory",
    "cut_power_at",
]

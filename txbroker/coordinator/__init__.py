"""Two-phase commit over several resources, decided in a durable log. ``docs/coordinator.md`` has the windows.

The protocol is presumed abort (Mohan, Lindsay and Obermarck, "Transaction management in the R* distributed database
management system", 1986): a commit is forced to the log before the first participant is told; a rollback is not logged.
"""

from txbroker.coordinator.coordinator import Coordinator, InDoubt, Resolution
from txbroker.coordinator.decision_log import Heuristic
from txbroker.coordinator.two_phase import CoordinatedTransaction

__all__ = ["CoordinatedTransaction", "Coordinator", "Heuristic", "InDoubt", "Resolution"]

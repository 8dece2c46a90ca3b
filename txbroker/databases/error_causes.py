"""What the errors in the course of a block mean for whoever opened it."""

from __future__ import annotations

from txbroker import errors


def delivery_pending(error: BaseException, timeout: float) -> errors.TxBrokerError:
    """What to raise when the broker's commit was to be waited for and did not come in time."""
    if isinstance(error, (errors.HeuristicOutcome, errors.TransactionRolledBack)):
        error.add_note("txbroker: the rows are committed; somebody forced the messages to the opposite")
        return error
    return errors.DeliveryPending(
        f"the rows are committed, and so are the messages; the broker has not shown them within {timeout:g} s "
        f"({error}). "
        "It will: do not do the work again"
    )


def told(error: BaseException) -> str:
    """What an error is and says: interrupts, and drivers at times, say nothing."""
    return f"{type(error).__name__}: {str(error).strip()}".removesuffix(": ")


def reason(error: BaseException) -> BaseException:
    """What to raise for a failed prepare: nothing is unknown about it, for the database was not asked to commit."""
    if isinstance(error, errors.OutcomeUnknown):
        return errors.TransactionRolledBack(
            f"the broker did not say in time whether it has prepared ({error}). The database was not asked to commit, "
            "so both are rolled back: at the broker now, or when it is back by a resolver. The block can be run again"
        )
    if isinstance(error, errors.TransactionRolledBack) and isinstance(error.__cause__, errors.TxBrokerError):
        return error.__cause__  # why an add was refused
    return error

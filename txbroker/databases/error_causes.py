"""The errors of a block, in terms of what they mean for the program."""

from __future__ import annotations

from txbroker import errors


def delivery_pending(error: BaseException, timeout: float) -> errors.TxBrokerError:
    """Return the error for a broker's commit that was waited for and did not come in time."""
    if isinstance(error, (errors.HeuristicOutcome, errors.TransactionRolledBack)):
        error.add_note("txbroker: the rows are committed; somebody forced the messages to the opposite")
        return error
    return errors.DeliveryPending(
        f"the rows are committed, and so are the messages; the broker has not shown them within {timeout:g} s "
        f"({error}). "
        "It will: do not do the work again"
    )


def told(error: BaseException) -> str:
    """Return an error's class and text: interrupts, and some errors of drivers, have no text."""
    return f"{type(error).__name__}: {str(error).strip()}".removesuffix(": ")


def reason(error: BaseException) -> BaseException:
    """Return the error for a failed prepare: its outcome is known, because the database was not asked to commit."""
    if isinstance(error, errors.OutcomeUnknown):
        return errors.TransactionRolledBack(
            f"the broker did not say in time whether it has prepared ({error}). The database was not asked to commit, "
            "so both are rolled back: at the broker now, or when it is back by a resolver. The block can be run again"
        )
    if isinstance(error, errors.TransactionRolledBack) and isinstance(error.__cause__, errors.TxBrokerError):
        return error.__cause__  # the reason why an add was refused
    return error

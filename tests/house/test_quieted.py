"""Test that a command may quieten a logger for itself, and that this ends with the command."""

import logging

import pytest

from tests.support.loggers import left_as_found
from txbroker.quiet_logger import quieted


def test_a_quieted_logger_lets_only_errors_through_and_only_within(caplog):
    logger = logging.getLogger("journal.quieted")
    with quieted("journal"):
        logger.warning("hidden")
        logger.error("shown")
    logger.warning("heard again")
    assert [record.getMessage() for record in caplog.records] == ["shown", "heard again"]


def test_a_command_that_fails_leaves_the_level_as_it_found_it():
    logger = logging.getLogger("journal")
    before = logger.level
    with pytest.raises(OSError, match="in the middle"), quieted("journal"):
        raise OSError("in the middle")
    assert logger.level == before


@pytest.mark.parametrize(
    "leave",
    [
        lambda: logging.getLogger("journal").setLevel(logging.ERROR),
        lambda: logging.getLogger("txbroker.made_by_this_test").setLevel(logging.ERROR),
        lambda: setattr(logging.getLogger("txbroker"), "disabled", True),
        lambda: setattr(logging.getLogger("journal"), "propagate", False),
        lambda: logging.disable(logging.WARNING),
    ],
    ids=["level", "level of a new one", "disabled", "propagate", "all of them"],
)
def test_a_test_that_leaves_a_logger_changed_is_told_so_and_later_ones_are_not_hurt(leave, caplog):
    with pytest.raises(AssertionError, match="leaves loggers changed"), left_as_found():
        leave()
    logging.getLogger("journal").warning("heard")
    logging.getLogger("txbroker.made_by_this_test").warning("this too")
    assert len(caplog.records) == 2
    with left_as_found():
        pass

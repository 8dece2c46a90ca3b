"""The table of folds has every one, so that whoever reads a checkpoint knows all of its rows."""

import importlib
import pkgutil

import journal
from journal.folds.table import FOLDS, client_folds
from journal.interfaces import IFold
from tests.support.engine_room import Room


def test_every_fold_of_the_journal_is_in_the_table_by_its_name():
    found = set()
    for module in pkgutil.walk_packages(journal.__path__, "journal."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and each.__module__ == module.name and IFold.implementedBy(each):
                found.add(each)
    named = {each.name: each for each in found if not any(each in other.__mro__[1:] for other in found)}
    assert named.keys() == FOLDS.keys()
    assert all(issubclass(named[name], fold) for name, fold in FOLDS.items())


def test_the_engine_s_own_and_those_of_clients_make_the_table():
    own = [fold.name for fold in Room().engine.folds]
    assert sorted(own + [fold.name for fold in client_folds()]) == sorted(FOLDS)

"""``python -m tests.backup_drill``: one drill; exit 1 if something was wrong. Then its files stay."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType

from tests.backup_drill.drill import BackupDrill, BackupOrders
from tests.backup_drill.replacement import Judged
from txbroker.cli.output import console, count_text, table
from txbroker.drill.drill import Progress
from txbroker.drill.judgement.violation import Violation
from txbroker.drill.plan.orders import Orders
from txbroker.drill.report.result import Report

SHOWN = 20
"""How many violations of the drill, and of one backup, are printed."""

LOAD = {"workers": 2, "schedulers": 1, "queuers": 1, "rate": 150.0}
"""The load beside senders, transactors, relay and reader. One restored broker after the other reads all of it back."""


class Quiet:
    """A watcher that tells what happens, and shows no progress."""

    def show(self, progress: Progress) -> None:
        """Show nothing."""

    def tell(self, line: str) -> None:
        """Print it."""
        print(line, flush=True)


def orders_of(seed: int, seconds: float, kills: int, out: Path) -> Orders:
    """Return the orders of the load."""
    return Orders(seed=seed, kills=kills, seconds=seconds, points=["random"], out=out, **LOAD)  # type: ignore[arg-type]


def main() -> int:
    """Run a drill, report, and say by the exit code whether nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.backup_drill", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long there is load (default 60)")
    parser.add_argument("--kills", type=int, default=10, help="how often the broker is killed (default 10)")
    parser.add_argument("--pause", type=float, default=2, help="seconds between two backups (default 2)")
    parser.add_argument(
        "--backups", type=int, default=0, help="how many are made at most (default: no bound)"
    )
    parser.add_argument(
        "--audit-every", type=int, default=1, metavar="N",
        help="Spark audits each Nth restored backup (default 1: each; 0: none)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=None, help="of load and kills (default: a new one)")
    parser.add_argument("--out", type=Path, default=None, help="a new folder for the files")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    out = arguments.out or Path(tempfile.mkdtemp(prefix="txbroker-backup-")) / "drill"
    orders = orders_of(seed, arguments.seconds, arguments.kills, out)
    wanted = BackupOrders(pause=arguments.pause, most=arguments.backups, audited=arguments.audit_every)
    print(
        f"{arguments.seconds:g} s of load, in {out}; then each backup is restored and judged, half a minute each"
    )
    drill = BackupDrill(orders, Quiet(), wanted)
    report = drill.run()
    drill.end()
    tell("the drill itself", report.violations)
    judged: list[Judged] = []
    for each in drill.judge_all():
        tell(each.backup, each.violations)
        judged.append(each)
    console().print(shown(drill, judged))
    return verdict(drill, report, judged, out)


def tell(where: str, violations: Sequence[Violation]) -> None:
    """Print violations."""
    for each in violations[:SHOWN]:
        print(f"VIOLATION in {where}: {each}", flush=True)
    if len(violations) > SHOWN:
        print(f"          and {len(violations) - SHOWN:,} more in {where}", flush=True)


def shown(drill: BackupDrill, judged: Sequence[Judged]) -> RenderableType:
    """Return a table of the backups."""
    columns = (
        "backup",
        "after",
        "kills",
        "messages",
        "waiting",
        "old clients",
        "Spark's audit",
        "violations",
    )
    rows = [
        (
            each.backup,
            f"{made.window.began - drill.began:.0f} s",
            made.kills,
            each.messages,
            each.restored,
            f"{each.told} told",
            None if each.audited is None else f"{each.audited:.0f} s",
            len(each.violations),
        )
        for made, each in zip(drill.made, judged, strict=True)
    ]
    return table(columns, rows, "No backup was made.")


def verdict(drill: BackupDrill, report: Report, judged: Sequence[Judged], out: Path) -> int:
    """Print the last lines; return the exit code. The files go if nothing was wrong."""
    wrong = len(report.violations) + sum(len(each.violations) for each in judged)
    for said in drill.failed:
        print(f"one failed loudly: {said.splitlines()[-1]}")
    made, failed = count_text(len(judged), "backup"), len(drill.failed)
    print(
        f"seed {report.seed}: {count_text(report.kills, 'kill')}, {made} made, restored and judged; {failed} failed "
        f"loudly, and {drill.killed} were killed themselves; {count_text(wrong, 'violation')}"
    )
    if not judged:
        print("no backup was made, so the drill shows nothing")
    if wrong or not judged:
        print(f"the files are in {out}")
        return 1
    shutil.rmtree(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

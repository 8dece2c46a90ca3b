"""``python -m tests.backup_drill``: one drill; exit 1 if something was wrong. Then its files stay."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.backup_drill.drill import BackupDrill
from txbroker.drill.drill import Progress
from txbroker.drill.plan.orders import Orders

SHOWN = 20
"""How many violations of one backup are printed."""


class Quiet:
    """A watcher that tells what happens, and shows no progress."""

    def show(self, progress: Progress) -> None:
        """Show nothing."""

    def tell(self, line: str) -> None:
        """Print it."""
        print(line, flush=True)


def main() -> int:
    """Run a drill, report, and say by the exit code whether nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.backup_drill", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long there is load (default 60)")
    parser.add_argument("--kills", type=int, default=10, help="how often the broker is killed (default 10)")
    parser.add_argument("--seed", type=int, default=None, help="of load and kills (default: a new one)")
    parser.add_argument("--out", type=Path, default=None, help="a new folder for the files")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    out = arguments.out or Path(tempfile.mkdtemp(prefix="txbroker-backup-")) / "drill"
    orders = Orders(seed=seed, kills=arguments.kills, seconds=arguments.seconds, points=["random"], out=out)
    drill = BackupDrill(orders, Quiet())
    report = drill.run()
    drill.end()
    wrong = list(report.violations)
    for each in wrong[:SHOWN]:
        print(f"VIOLATION of the drill itself: {each}")
    for judged in drill.judge_all():
        print(f"{judged.backup}: {judged.messages:,} messages, {judged.restored} restored transactions")
        for each in judged.violations[:SHOWN]:
            print(f"  VIOLATION: {each}")
        wrong += judged.violations
    print(
        f"seed {seed}: {report.kills} kills, {len(drill.made)} backups made and restored, {len(drill.failed)} failed "
        f"loudly, {len(wrong)} violations"
    )
    if not drill.made:
        print("no backup was made, so the drill shows nothing")
    if wrong or not drill.made:
        print(f"the files are in {out}")
        return 1
    shutil.rmtree(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Three real nodes and three members of etcd under every fault that there is, and the simulator's checkers on it.

    make jepsen MINUTES=30        or        python -m compat_tests.jepsen [--minutes 30] [--seed 0] [--kinds kill,cut]

Nodes are killed (SIGKILL), frozen (SIGSTOP), stopped, and their disks filled; all ways between nodes, clients and etcd
are links that are cut, slow, reset, or swallow what is sent; members of etcd are killed and frozen. Several faults come
at a time. Meanwhile the simulator's clients work, of every kind, and beside them librdkafka's and Java's.

The exit code is 0 if nothing is wrong. The logs stay in the folder of `--data-dir` if there is one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from compat_tests.brokers.disks import can_mount
from compat_tests.java import missing
from compat_tests.jepsen.run import KINDS, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="compat_tests.jepsen", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults come (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="of what comes and when")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of faults with commas between them")
    parser.add_argument("--data-dir", type=Path, help="a new folder for data and logs (default: a temporary one)")
    arguments = parser.parse_args()
    if shutil.which("etcd") is None:
        print("etcd is missing (Debian: etcd-server)", file=sys.stderr)
        return 2
    if unknown := set(arguments.kinds.split(",")) - set(KINDS):
        parser.error(f"there are no faults called {', '.join(sorted(unknown))}: there are {', '.join(KINDS)}")
    if not can_mount():
        print("no disk is filled: mounting one in memory is not allowed here", file=sys.stderr)
    if why := missing():
        print(f"no Java clients: {why}", file=sys.stderr)
    with TemporaryDirectory(prefix="jepsen-") as temporary:
        folder = arguments.data_dir or Path(temporary) / "run"
        folder.mkdir(parents=True)
        outcome = run(arguments.minutes * 60, arguments.seed, folder, arguments.kinds.split(","))
    print(outcome.summary)
    print(*outcome.wrong, sep="\n")
    print("NOT good" if outcome.wrong else "all good")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

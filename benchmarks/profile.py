"""Why a figure is what it is: the longest hold of the event loop in a workload, and where the broker's time goes.

Both are runs of their own, because looking costs time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.workloads import Workload
from compat_tests.ottla_broker import OttlaBroker

_WATCH_LOOP: Final = {"ottla.loop.hold.warning.ms": "0.5"}
_HELD: Final = re.compile(
    r"the loop was held (\d+) times, for at most ([\d.]+) ms, of which the CPU worked at most ([\d.]+) ms"
)
_SAMPLES_PER_S: Final = 200
_LINES: Final = 25


class Hold(NamedTuple):
    """Steps of a task that took 0.5 ms or longer: how many, the longest, and the longest in CPU time."""

    times: int
    longest_ms: float
    longest_cpu_ms: float


def longest_hold(workload: Workload) -> Hold:
    """Run a workload under the loop watchdog. On a shared machine the time without CPU is mostly its neighbours'."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        broker = OttlaBroker(Path(folder), overrides=_WATCH_LOOP)
        with broker:
            workload(broker)
        found = _HELD.findall(broker.log_path.read_text(errors="replace"))
    count, longest_ms, longest_cpu_ms = found[-1]
    return Hold(int(count), float(longest_ms), float(longest_cpu_ms))


def record(name: str, workload: Workload, folder: Path) -> Path:
    """Run a workload under py-spy, and write where the samples fell: `<name>.txt` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).with_name("py-spy")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as data:
        raw = Path(data) / "samples"
        with OttlaBroker(Path(data)) as broker:
            command = [program, "record", "--nonblocking", "--pid", str(broker.pid), "--rate", str(_SAMPLES_PER_S)]
            spy = subprocess.Popen(
                [*map(str, command), "--duration", "unlimited", "--format", "raw", "--output", str(raw)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                workload(broker)
            finally:
                spy.send_signal(2)
                spy.wait(60)
        text = _digest(raw.read_text())
    path = folder / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".txt")
    path.write_text(f"{name}: samples of the broker, {_SAMPLES_PER_S} a second while it was at work\n\n{text}")
    return path


def _digest(raw: str) -> str:
    """The functions by their own share of the samples, and by the share of what they call as well."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    total = 0
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [re.sub(r":\d+\)$", ")", frame) for frame in stack.split(";")]
        total += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    return f"own time\n{_shares(own, total)}\nwith what they call\n{_shares(whole, total)}"


def _shares(counter: Counter[str], total: int) -> str:
    return "".join(f"{count * 100 / total:6.1f} %  {frame}\n" for frame, count in counter.most_common(_LINES))

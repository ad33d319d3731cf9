"""Why a figure is what it is: the longest hold of the event loop in a workload, and where the broker's time goes.

Both come from one run of their own, whose figures are not counted, because looking costs time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measuring.c_program import MissingToolError
from benchmarks.reporting.results import Hold
from benchmarks.workloads import Workload
from compat_tests.brokers.ottla_broker import OttlaBroker

_WATCH_LOOP: Final = {"ottla.loop.hold.warning.ms": "0.5"}
_SUMMED_UP: Final = re.compile(
    r"the loop was held (\d+) times, for at most ([\d.]+) ms, of which the CPU worked at most ([\d.]+) ms"
)
_HELD: Final = re.compile(
    r"the loop was held for [\d.]+ ms \((?P<cpu>[\d.]+) ms of CPU\) by (?P<task>.+?)"
    r"(?P<collected>, [\d.]+ ms of it garbage collection)?(?:; \d+ more were not logged)?\n"
)
_FOLDER_OF_FILE: Final = re.compile(r'File "[^"]*/(?:ottla|site-packages|python[\d.]+)/')
_WATCHDOG: Final = "watchdog.py"
_IMPORT: Final = "importlib._bootstrap"
_SAMPLES_PER_S: Final = 100
_LINES: Final = 25
_HOLDS: Final = 5


class Seen(NamedTuple):
    """What looking at a workload has shown."""

    hold: Hold
    digest: str


class WatchedBroker(OttlaBroker):
    """Ottla under its loop watchdog, and from each of its starts to the next stop under py-spy.

    `samples` are the files of the latter, one a start; `log` is what was logged between, without starts and stops.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, overrides=_WATCH_LOOP)
        self.samples: list[Path] = []
        self.log = ""
        self._log_size = 0
        self._spy: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        super().start()
        program = Path(sys.executable).with_name("py-spy")
        if not program.exists():
            raise MissingToolError("py-spy is needed: install the group `bench`, or leave the profiles out")
        self._log_size = self.log_path.stat().st_size
        self.samples.append(self.folder / f"samples-{len(self.samples)}")
        command = [program, "record", "--nonblocking", "--pid", self.pid, "--rate", _SAMPLES_PER_S]
        output = ["--duration", "unlimited", "--format", "raw", "--output", self.samples[-1]]
        self._spy = subprocess.Popen(
            [*map(str, command + output)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def stop(self) -> int:
        self.log += self.log_path.read_text(errors="replace")[self._log_size :]
        try:
            return super().stop()
        finally:
            if self._spy is not None:
                self._spy.wait(60)  # it ends with the process that it looks at
                self._spy = None


def look_at(name: str, workload: Workload) -> Seen:
    """Run a workload once. On a shared machine the time of a hold without CPU is mostly its neighbours'."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        broker = WatchedBroker(Path(folder))
        with broker:
            workload(broker)
        whole_log = broker.log_path.read_text(errors="replace")
        samples = "".join(path.read_text() for path in broker.samples if path.exists())
    return Seen(longest_hold(whole_log, broker.log), f"{name}\n\n{digest(samples)}\n{longest_holds(broker.log)}")


def keep(name: str, seen: Seen, folder: Path) -> Path:
    """Write `<name>.txt` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".txt")
    path.write_text(seen.digest)
    return path


def longest_hold(whole_log: str, log: str) -> Hold:
    """What the watchdog summed up at the end of each of the broker's lives, and whose the longest hold by CPU was."""
    lives = [(int(times), float(ms), float(cpu_ms)) for times, ms, cpu_ms in _SUMMED_UP.findall(whole_log)]
    if not lives:
        raise ValueError(f"the broker's log does not say how long its loop was held:\n{whole_log[-2000:]}")
    times, longest_ms, longest_cpu_ms = zip(*lives, strict=True)
    return Hold(sum(times), max(longest_ms), max(longest_cpu_ms), _whose(log))


def longest_holds(log: str) -> str:
    """The longest holds that were logged, with their stacks. The watchdog logs ten a second."""
    texts = [_FOLDER_OF_FILE.sub('File "', event) for event, _ in _by_cpu(log)[:_HOLDS]]
    return "\n".join(["longest holds of the loop by CPU, of those that were logged", *texts, ""])


def _by_cpu(log: str) -> list[tuple[str, re.Match[str]]]:
    """The holds in a log of a JSON object a line: each event, and its parts."""
    events = [str(json.loads(line).get("event")) for line in log.splitlines() if line.startswith("{")]
    held = [(event, match) for event in events if (match := _HELD.match(event))]
    return sorted(held, key=lambda pair: float(pair[1]["cpu"]), reverse=True)


def _whose(log: str) -> str:
    """The task of the longest hold; if that only imported a module, the next one of those that were logged as well."""
    held = _by_cpu(log)
    if not held:
        return ""
    after = next((place for place, (event, _) in enumerate(held) if _IMPORT not in event), 0)
    longest = _named(held[0][1])
    return f"{longest}, importing; else {held[after][1]['cpu']} ms, {_named(held[after][1])}" if after else longest


def _named(held: re.Match[str]) -> str:
    return held["task"].removeprefix("ottla.") + (", collecting garbage" if held["collected"] else "")


def digest(samples: str) -> str:
    """The functions by their own share of the samples (py-spy's raw format), and with the share of what they call.

    What the watchdog takes is left out.
    """
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        if _WATCHDOG in stack:
            continue
        frames = [re.sub(r":\d+\)$", ")", frame) for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    total = own.total()
    about = f"{total} samples of threads at work, {_SAMPLES_PER_S} a second\n"
    return f"{about}\nown time\n{_shares(own, total)}\nwith what they call\n{_shares(whole, total)}"


def _shares(counter: Counter[str], total: int) -> str:
    return "".join(f"{count * 100 / total:6.1f} %  {frame}\n" for frame, count in counter.most_common(_LINES))

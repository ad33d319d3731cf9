"""A broker as a process, an honest client beside it, and what both suffer while somebody attacks."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.client.connection import BrokerConnection
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest

from .honest import TOPIC

#: So that all of memory that a budget allows can be told from what goes beyond.
MEMORY_BUDGET_BYTES: Final = 64 * 1024 * 1024
TAIL_CACHE_BYTES: Final = 32 * 1024 * 1024

#: Requests, responses, the tail cache.
BUDGETS_MIB: Final = (2 * MEMORY_BUDGET_BYTES + TAIL_CACHE_BYTES) // (1024 * 1024)

_QUIET_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 60.0
_SUM = re.compile(r"held (\d+) times, for at most ([\d.]+) ms, of which the CPU worked at most ([\d.]+) ms")

Attack = Callable[["Target"], None]


@dataclass(frozen=True)
class Target:
    """Where the broker listens, and how large its memory is now."""

    port: int
    pid: int

    def connect(self, timeout_seconds: float = 60.0) -> BrokerConnection:
        return BrokerConnection("127.0.0.1", self.port, timeout_seconds)

    def memory_mib(self, line: str = "VmRSS") -> float:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(re.search(rf"^{line}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024  # type: ignore[index]


@dataclass(frozen=True)
class Suffered:
    """What an attack did."""

    seconds: float
    before_mib: float
    peak_mib: float
    #: The 99th percentiles of the honest client, and its longest wait.
    metadata_ms: float
    produce_ms: float
    longest_ms: float
    honest_calls: int
    honest_error: str
    holds: int
    longest_hold_ms: float
    longest_cpu_ms: float
    tracebacks: int
    holders: str

    @property
    def grown_mib(self) -> float:
        return self.peak_mib - self.before_mib


#: Watched, the event loop serves small requests in a task, so that each hold has a step. Without, in its own wait.
UNWATCHED: Final = {"ottla.loop.hold.warning.ms": "0"}


def suffer(attack: Attack, folder: Path, settings: Mapping[str, str] | None = None) -> Suffered:
    """Start a broker, attack it beside an honest client, and stop it. With `UNWATCHED` no holds are counted."""
    log = folder / "broker.log"
    with _broker(folder, log, dict(settings or {})) as target:
        _create_topic(target)
        before = target.memory_mib()
        honest = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.honest", str(target.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with honest:
            try:
                assert honest.stdout is not None
                honest.stdout.readline()
                time.sleep(_QUIET_SECONDS)
                began = time.monotonic()
                attack(target)
                seconds = time.monotonic() - began
                time.sleep(_QUIET_SECONDS)
                said, _ = honest.communicate("", timeout=120)
            finally:
                honest.kill()
        seen = json.loads(said)
        peak = target.memory_mib("VmHWM")
    text = log.read_text(encoding="utf-8", errors="replace")
    is_watched = settings is None or not UNWATCHED.items() <= settings.items()
    holds, longest, cpu = _SUM.findall(text)[-1] if is_watched else (0, 0, 0)
    return Suffered(
        seconds,
        before,
        peak,
        _p99(seen["metadata"]),
        _p99(seen["produce"]),
        max([*seen["metadata"], *seen["produce"]], default=float("inf")),
        len(seen["produce"]),
        seen["error"],
        int(holds),
        float(longest),
        float(cpu),
        text.count("Traceback"),
        _holders(text),
    )


@contextmanager
def _broker(folder: Path, log: Path, settings: dict[str, str]) -> Iterator[Target]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "ottla.memory.budget.bytes": str(MEMORY_BUDGET_BYTES),
        "ottla.tail.cache.bytes": str(TAIL_CACHE_BYTES),
        "ottla.loop.hold.warning.ms": "20",
        "ottla.log.format": "console",
        **settings,
    }
    command = [sys.executable, "-m", "ottla.cli", "serve", "--data-dir", str(folder / "data")]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield Target(ready["port"], process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(_STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _create_topic(target: Target) -> None:
    connection = target.connect()
    connection.call(
        CreateTopicsRequest(
            topics=[CreatableTopic(name=TOPIC, num_partitions=4, replication_factor=1)], timeout_ms=5000
        )
    )
    connection.close()


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100] if values else float("inf")


def _holders(text: str) -> str:
    """The innermost lines of Ottla in the longest hold that was logged."""
    longest, where = 0.0, ""
    for match in re.finditer(r"\(([\d.]+) ms of CPU\) by [^\n]*((?:\n  [^\n]*)+)", text):
        frames = re.findall(r'File "[^"]*/(\w+/\w+\.py)", line (\d+)', match[2])
        if float(match[1]) > longest and frames:
            longest, where = float(match[1]), " < ".join(f"{file}:{line}" for file, line in frames[-2:])
    return where

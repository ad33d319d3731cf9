"""Load through `rdkafka_performance`, which librdkafka's examples measure brokers by.

It is on the path, or else built of the source that Debian's `librdkafka-dev` brings as an example, unchanged. That was
written to be built inside librdkafka's own tree: the few private definitions that it takes from there are in `src/`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.measuring.c_program import TIMEOUT_S, CProgram, MissingToolError

__all__ = ["build", "consume", "consumed", "produce", "produced"]

_EXAMPLE: Final = Path("/usr/share/doc/librdkafka-dev/examples/rdkafka_performance.c")
_PROGRAM: Final = CProgram(_EXAMPLE, "rdkafka", includes=(Path(__file__).with_name("src"),))
_PRODUCER: Final = ("acks=1", "linger.ms=5", "batch.size=1000000")
_CONSUMER: Final = ("fetch.message.max.bytes=4000000",)
_SHOW_NOTHING_MS: Final = "1000000"
_PRODUCED: Final = re.compile(
    r"% \d+ messages produced \(\d+ bytes\), (?P<records>\d+) delivered \(offset \d+, 0 failed\) in (?P<ms>\d+)ms:"
)
_CONSUMED: Final = re.compile(r"% (?P<records>\d+) messages \(\d+ bytes\) consumed in (?P<ms>\d+)ms:")


def build() -> Path:
    """The program. Raises MissingToolError, which says what to install."""
    found = shutil.which("rdkafka_performance")
    if found is not None:
        return Path(found)
    if not _EXAMPLE.exists():
        raise MissingToolError(
            f"rdkafka_performance is not on the path, nor {_EXAMPLE} there to build it of: install librdkafka-dev"
        )
    return _PROGRAM.build()


def produce(bootstrap: str, topic: str, count: int, size_bytes: int) -> float:
    """Send `count` records as fast as they go, to partitions that librdkafka chooses; the seconds that it took.

    Raises CalledProcessError if the program fails, ValueError if it did not deliver everything.
    """
    words = ("-P", "-t", topic, "-s", str(size_bytes), "-c", str(count))
    return produced(_run(bootstrap, *words, *_settings(_PRODUCER)), count)


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """Read `count` records of all partitions from their beginning; the seconds from the first record to the last.

    Raises CalledProcessError if the program fails, ValueError if it did not read everything.
    """
    chosen = [word for partition in range(partitions) for word in ("-p", str(partition))]
    words = ("-C", "-t", topic, *chosen, "-o", "beginning", "-c", str(count))
    return consumed(_run(bootstrap, *words, *_settings(_CONSUMER)), count)


def produced(printed: str, count: int) -> float:
    """The seconds that a run says it took to deliver `count` records. ValueError if it did not deliver them all."""
    return _seconds(_PRODUCED, printed, count)


def consumed(printed: str, count: int) -> float:
    """The seconds that a run says it took to read at least `count` records. ValueError if it read fewer."""
    return _seconds(_CONSUMED, printed, count)


def _seconds(summary: re.Pattern[str], printed: str, count: int) -> float:
    last = list(summary.finditer(printed))[-1:]
    if not last or int(last[0]["records"]) < count:
        raise ValueError(f"not all of {count} records went through:\n{printed[-2000:]}")
    return int(last[0]["ms"]) / 1000


def _settings(properties: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for each in properties for word in ("-X", each))


def _run(bootstrap: str, *words: str) -> str:
    command = [str(build().absolute()), "-b", bootstrap, "-i", _SHOW_NOTHING_MS, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout

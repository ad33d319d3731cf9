"""Load through Apache Kafka's own tools for it, `kafka-producer-perf-test` and `kafka-consumer-perf-test`.

They run as their scripts run them, with half a gigabyte of heap. Where they print MB they mean 2^20 bytes; what is
returned here is in records, which is unambiguous.
"""

from __future__ import annotations

import random
import re
import string
import subprocess
import tempfile
from typing import Final

from benchmarks.measuring.c_program import MissingToolError
from compat_tests.java import java, missing

_PACKAGE: Final = "org.apache.kafka.tools"
_HEAP_MB: Final = 512
_TIMEOUT_S: Final = 600
_PAYLOADS: Final = 100
_SENT: Final = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec .*, (?P<p50>\d+) ms 50th, .* (?P<p99>\d+) ms 99th,"
)
_READ_COLUMNS: Final = 10
_READ_RECORDS, _READ_PER_S = 4, 9
_SHARED_COLUMNS: Final = 7
_SHARED_PER_S, _SHARED_RECORDS = 4, 5


def produce(bootstrap: str, topic: str, count: int, size_bytes: int, *properties: str) -> dict[str, float]:
    """Send `count` records as fast as they go: `records_per_s`, and the milliseconds to the acknowledgement.

    The records are drawn from a file, as making random letters takes the tool longer than sending them. Raises
    CalledProcessError if the tool fails.
    """
    letters = random.Random(size_bytes)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as payloads:
        for _ in range(_PAYLOADS):
            payloads.write("".join(letters.choices(string.ascii_uppercase, k=size_bytes)) + "\n")
        payloads.flush()
        printed = _run(
            "ProducerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(count), "--throughput", "-1"),
            *("--payload-file", payloads.name, "--command-property", *properties),
        )
    return sent(printed, count)


def sent(printed: str, count: int) -> dict[str, float]:
    """What the producer's tool said at its end. Raises ValueError if it did not send everything."""
    last = [match for match in _SENT.finditer(printed) if int(match["records"]) == count]
    if not last:
        raise ValueError(f"not everything was sent:\n{printed}")
    names = {"records_per_s": "rate", "p50_ms": "p50", "p99_ms": "p99"}
    return {name: float(last[-1][group]) for name, group in names.items()}


def consume(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Read `count` records from the beginning: `records_per_s`, without the time in which the group was formed.

    Raises CalledProcessError if the tool fails.
    """
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    return read(_run("ConsumerPerformance", *where, "--num-records", str(count)), count)


def read(printed: str, count: int) -> dict[str, float]:
    """What the consumer's tool said: a line of columns. Raises ValueError if it did not read everything."""
    lines = [line.split(", ") for line in printed.splitlines()]
    rows = [line for line in lines if len(line) == _READ_COLUMNS and line[_READ_RECORDS].isdigit()]
    if not rows or int(rows[-1][_READ_RECORDS]) < count:
        raise ValueError(f"not everything was read:\n{printed}")
    return {"records_per_s": float(rows[-1][_READ_PER_S])}


def consume_shared(bootstrap: str, topic: str, group: str, count: int, members: int) -> dict[str, float]:
    """Read `count` records with the members of one share group: `records_per_s`, with the time in which they joined.

    Raises CalledProcessError if the tool fails.
    """
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--threads", str(members))
    # The tool ends a run at its timeout, whatever is left to be read.
    printed = _run("ShareConsumerPerformance", *where, "--num-records", str(count), "--timeout", str(_TIMEOUT_S * 1000))
    return read_shared(printed, count)


def read_shared(printed: str, count: int) -> dict[str, float]:
    """What the share consumer's tool said: a line of columns. Raises ValueError if it did not read everything."""
    lines = [line.split(", ") for line in printed.splitlines()]
    rows = [line for line in lines if len(line) == _SHARED_COLUMNS and line[_SHARED_RECORDS].isdigit()]
    if not rows or int(rows[-1][_SHARED_RECORDS]) < count:
        raise ValueError(f"not everything was read:\n{printed}")
    return {"records_per_s": float(rows[-1][_SHARED_PER_S])}


def _run(tool: str, *words: str) -> str:
    if reason := missing():
        raise MissingToolError(reason)
    command = java(f"{_PACKAGE}.{tool}", *words, heap_mb=_HEAP_MB)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    return done.stdout

"""`ottla replay`: send a recording to topics again, with its timing, faster, or at once."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.client.admin.topics import create_topic
from ottla.client.batch_sender import BatchSender
from ottla.client.client import Client
from ottla.client.recording import RecordingError, parse_recording

AT_ONCE: Final = float("inf")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a recording of `ottla record`; - is standard input")
    parser.add_argument(
        "--speed", type=_speed, default=1.0, metavar="FACTOR", help="1 as recorded (default), 10 ten times as fast, max"
    )
    parser.add_argument(
        "--topic",
        type=options.name_and_value,
        action="append",
        default=[],
        metavar="RECORDED=TARGET",
        help="send what was recorded of one topic to another; may be repeated",
    )
    parser.add_argument("--now", action="store_true", help="stamp records with the time they are sent")
    options.add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    renamed = dict(arguments.topic)
    progress = options.Progress("replayed")
    pace = _Pace(arguments.speed)
    with connected(arguments) as client, _input(arguments.file) as file:
        try:
            recording = parse_recording(file)
            topics: dict[str, int] = {}
            sender = BatchSender(client)
            for entry in recording.entries:
                if recording.topics != topics:  # at the beginning, and wherever it names more
                    topics = dict(recording.topics)
                    _create_missing(client, {renamed.get(name, name): count for name, count in topics.items()})
                if entry.is_commit is not None:
                    continue
                if not pace.is_due(entry.record.timestamp_ms):
                    sender.flush()
                    pace.wait()
                record = entry.record._replace(timestamp_ms=_now_ms()) if arguments.now else entry.record
                sender.add(renamed.get(entry.topic, entry.topic), record, entry.partition)
                progress.add(1, len(record.value or b""))
            sender.flush()
        except RecordingError as error:
            raise CommandError(f"{arguments.file}: {error}") from None
    progress.finish()
    return 0


class _Pace:
    """The schedule of records: each one's distance from the first one in the recording, divided by the speed."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._first_ms: int | None = None
        self._started = 0.0
        self._due = 0.0

    def is_due(self, timestamp_ms: int) -> bool:
        """Whether a record is due now; if not, `wait` returns when it is."""
        if self._first_ms is None:
            self._first_ms = timestamp_ms
            self._started = time.monotonic()
        self._due = self._started + (timestamp_ms - self._first_ms) / 1000 / self._speed
        return time.monotonic() >= self._due

    def wait(self) -> None:
        time.sleep(max(0.0, self._due - time.monotonic()))


def _speed(text: str) -> float:
    if text == "max":
        return AT_ONCE
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number above 0, or max")
    return speed


def _create_missing(client: Client, topics: dict[str, int]) -> None:
    known = {topic.name for topic in client.metadata(None).topics}
    for name, partitions in topics.items():
        if name not in known:
            create_topic(client, name, partitions)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _input(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - only opening it may fail so
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from None
    with file:
        yield file

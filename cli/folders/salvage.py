"""`ottla salvage`: take records out of data files that are damaged, or that were set aside at a start.

Exit codes: 0 done, 1 a file cannot be read.
"""

from __future__ import annotations

import argparse
import os
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ottla.cli import CommandError, options
from ottla.cli.folders.watched_disk import WatchedDisk, size_of
from ottla.client.recording import write_recording
from ottla.client.topic_reader import Entry, Transaction
from ottla.kproto.records import iter_records, parse_end_txn_marker
from ottla.storage.errors import StorageError
from ottla.storage.inspect.salvage import SoundBatch, salvage
from ottla.storage.kept_logs import SET_ASIDE_FOLDER

if TYPE_CHECKING:
    from ottla.storage.disk import Disk


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .data file, or one with .cut in its name")
    parser.add_argument(
        "--to", metavar="RECORDING", help="write the records to this file, for `ottla replay`; - prints"
    )
    parser.add_argument("--partition", type=options.number, help="only this partition's")


def run(arguments: argparse.Namespace) -> int:
    """List what is sound, or write it as a recording."""
    progress = options.Progress("read", enabled=not sys.stdout.isatty())
    disk = WatchedDisk(progress, size_of(arguments.files))
    try:
        offsets = _offsets(disk, arguments)
        if arguments.to is None:
            for (topic, partition), (first, last, count) in sorted(offsets.items()):
                print(f"{topic}-{partition}: {options.counted(count, 'record')}, offsets {first} to {last}")
            if not offsets:
                print("no sound record")
            return 0
        topics: dict[str, int] = {}
        for topic, partition in offsets:
            topics[topic] = max(topics.get(topic, 0), partition + 1)
        with _output(arguments.to) as file:
            count = write_recording(file, topics, _entries(disk, arguments))
    except StorageError as error:
        raise CommandError(str(error)) from error
    finally:
        progress.finish()
    print(f"{options.counted(count, 'record')}: look at the file; `ottla replay` sends what is in it", file=sys.stderr)
    return 0


def _offsets(disk: Disk, arguments: argparse.Namespace) -> dict[tuple[str, int], tuple[int, int, int]]:
    """By topic and partition: the first and the last offset, and the number of records."""
    found: dict[tuple[str, int], tuple[int, int, int]] = {}
    for topic, batch in _batches(disk, arguments):
        header = batch.header
        if header.is_control:
            continue
        first, last, count = found.get((topic, batch.partition), (header.base_offset, -1, 0))
        found[topic, batch.partition] = (
            min(first, header.base_offset),
            max(last, header.last_offset),
            count + header.record_count,
        )
    return found


def _batches(disk: Disk, arguments: argparse.Namespace) -> Iterator[tuple[str, SoundBatch]]:
    for path in arguments.files:
        for batch in salvage(disk, path):
            if arguments.partition in (None, batch.partition):
                yield _topic_of(path, batch), batch


def _topic_of(path: str, batch: SoundBatch) -> str:
    """The topic's name if its folder has it, or the name of what was set aside; else its id."""
    encoded = urlsafe_b64encode(batch.topic_id.bytes).decode().rstrip("=")
    place = Path(os.path.abspath(path))
    if place.parent.name == SET_ASIDE_FOLDER:
        name, found, _ = place.name.partition(f".{encoded}-")
        return name if found else str(batch.topic_id)
    name, _, topic_id = place.parent.parent.name.rpartition(".")
    return name if topic_id == encoded else str(batch.topic_id)


def _entries(disk: Disk, arguments: argparse.Namespace) -> Iterator[Entry]:
    for topic, batch in _batches(disk, arguments):
        header, content, position = batch.header, batch.content, batch.position
        transaction = Transaction(header.producer_id, header.producer_epoch) if header.is_transactional else None
        marker = parse_end_txn_marker(content, position, header) if header.is_control else None
        if header.is_control and marker is None:
            continue
        for record in iter_records(content, position, header):
            is_commit = marker.is_commit if marker is not None else None
            yield Entry(topic, batch.partition, record, header.timestamp_type, transaction, is_commit)


@contextmanager
def _output(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdout.buffer
        return
    with open(path, "xb") as file:
        yield file

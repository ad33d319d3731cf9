"""`ottla record`: write the records of topics into a file that people can read and compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from typing import IO

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.client.client import Client
from ottla.client.recording import write_recording
from ottla.client.topic_reader import Entry, TopicReader


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="topic")
    parser.add_argument("file", help="where to write; - is standard output")
    parser.add_argument("--all", action="store_true", help="every topic except internal ones")
    parser.add_argument(
        "--uncommitted",
        action="store_true",
        help="also records of open and aborted transactions, marked as such, and the transactions' markers",
    )
    options.add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    progress = options.Progress("recorded", enabled=arguments.file != "-")
    with connected(arguments) as client:
        readers = [
            TopicReader(client, topic, read_committed=not arguments.uncommitted) for topic in _topics(client, arguments)
        ]
        topics = {reader.topic: len(reader.partitions) for reader in readers}
        with _output(arguments.file) as file:
            count = write_recording(file, topics, _told(_in_time(readers), progress))
    progress.finish()
    if arguments.file != "-":
        print(f"{options.counted(count, 'record')} of {options.counted(len(topics), 'topic')}", file=sys.stderr)
    return 0


def _topics(client: Client, arguments: argparse.Namespace) -> list[str]:
    if arguments.all and arguments.topics:
        raise CommandError("name topics or give --all, not both")
    if arguments.topics:
        return sorted(set(arguments.topics))
    if not arguments.all:
        raise CommandError("nothing to record: name topics or give --all")
    return sorted(topic.name or "" for topic in client.metadata(None).topics if not topic.is_internal)


def _in_time(readers: list[TopicReader]) -> Iterator[Entry]:
    """The records that exist now, ordered by time; those of one partition keep their order whatever their times."""
    partitions: list[Iterator[Entry]] = []
    for reader in readers:
        ends = reader.ends()
        partitions += [reader.read(index, ends[index]) for index in reader.partitions if index in ends]
    return merge(*partitions, key=lambda entry: entry.record.timestamp_ms)


def _told(entries: Iterator[Entry], progress: options.Progress) -> Iterator[Entry]:
    for entry in entries:
        progress.add(1, len(entry.record.value or b""))
        yield entry


@contextmanager
def _output(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = open(name, "wb")  # noqa: SIM115 - only opening it may fail so
    except OSError as error:
        raise CommandError(f"cannot write {name}: {error.strerror}") from None
    with file:
        yield file

"""`ottla consume`: print records, in the manner of kcat -C."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.cli.format import Consumed, Formatter, format_json, parse_format
from ottla.client.aborted_transactions import AbortedTransactions
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.metadata import MetadataResponseTopic
from ottla.kproto.records import iter_batches, iter_records

_LATEST, _EARLIEST = -1, -2
_FETCH_BYTES = 8 * 1024 * 1024
_FOLLOW_WAIT_MS = 500
_NO_SESSION_EPOCH = -1


@dataclass(slots=True)
class Position:
    """Where reading of one partition stands, and where it is to end (None: never)."""

    partition: int
    leader: int
    offset: int
    end_offset: int | None

    @property
    def is_done(self) -> bool:
        return self.end_offset is not None and self.offset >= self.end_offset


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("-p", "--partition", type=int, action="append", help="default: all; may be repeated")
    parser.add_argument(
        "-o",
        "--offset",
        default="beginning",
        metavar="WHERE",
        help="beginning, end, an offset, -N (N before the end) or s@TIMESTAMP in ms; also e@TIMESTAMP where to stop",
    )
    parser.add_argument(
        "--until", metavar="WHERE", help="where to stop, written as --offset; default: the end as of now"
    )
    parser.add_argument("--follow", action="store_true", help="wait for new records instead of stopping at the end")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end (the default without --follow)")
    parser.add_argument("-c", "--count", type=int, help="stop after so many records")
    parser.add_argument("-f", "--format", help="such as '%%t %%p %%o %%k %%s\\n'; see `ottla consume --help-format`")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="print the key, too, with this behind it")
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="what ends a record")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON object a record")
    parser.add_argument("-u", "--unbuffered", action="store_true", help="write each record at once")
    parser.add_argument("--read-committed", action="store_true", help="skip records of open and aborted transactions")
    parser.add_argument("--help-format", action="version", help="explain --format", version=parse_format.__doc__ or "")
    options.add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    formatter = _formatter(arguments)
    progress = options.Progress("read", enabled=not sys.stdout.isatty())
    output = sys.stdout.buffer
    with connected(arguments) as client:
        records = _consume(client, arguments)
        for number, consumed in enumerate(records, 1):
            text = formatter(consumed)
            output.write(text)
            if arguments.unbuffered or (arguments.follow and sys.stdout.isatty()):
                output.flush()
            progress.add(1, len(text))
            if number == arguments.count:
                break
    output.flush()
    progress.finish()
    return 0


def _formatter(arguments: argparse.Namespace) -> Formatter:
    if arguments.json:
        return format_json
    if arguments.format is not None:
        return parse_format(arguments.format)
    end = arguments.delimiter
    return parse_format(f"%s{end}" if arguments.key_delimiter is None else f"%k{arguments.key_delimiter}%s{end}")


def _consume(client: Client, arguments: argparse.Namespace) -> Iterator[Consumed]:
    topic = client.topic(arguments.topic)
    positions = _positions(client, topic, arguments)
    isolation = _isolation(arguments)
    while waiting := [position for position in positions if not position.is_done]:
        for leader in sorted({position.leader for position in waiting}):
            asked = [position for position in waiting if position.leader == leader]
            yield from _fetch(client, topic, leader, asked, isolation)


def _isolation(arguments: argparse.Namespace) -> int:
    return 1 if arguments.read_committed else 0


def _fetch(
    client: Client,
    topic: MetadataResponseTopic,
    leader: int,
    asked: list[Position],
    isolation: int,
) -> Iterator[Consumed]:
    by_partition = {position.partition: position for position in asked}
    partitions = [
        FetchPartition(partition=p.partition, fetch_offset=p.offset, partition_max_bytes=_FETCH_BYTES) for p in asked
    ]
    response = client.broker(leader).call(
        FetchRequest(
            max_wait_ms=_FOLLOW_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=isolation,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=topic.name or "", topic_id=topic.topic_id, partitions=partitions)],
        )
    )
    if response.error_code:
        raise BrokerError(response.error_code, what=f"topic {topic.name}")
    for answer in (answer for answered in response.responses for answer in answered.partitions):
        position = by_partition[answer.partition_index]
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            _find_leaders(client, topic.name or "", asked)
            continue
        if answer.error_code:
            raise BrokerError(answer.error_code, what=f"{topic.name}-{position.partition} at offset {position.offset}")
        aborted = AbortedTransactions((t.producer_id, t.first_offset) for t in answer.aborted_transactions or ())
        yield from _records(topic.name or "", position, memoryview(answer.records or b""), aborted)


def _records(topic: str, position: Position, records: memoryview, aborted: AbortedTransactions) -> Iterator[Consumed]:
    for start, header in iter_batches(records):
        if not aborted.hides(header):
            for record in iter_records(records, start, header):
                if position.is_done:
                    return
                if record.offset >= position.offset:
                    position.offset = record.offset + 1
                    yield Consumed(topic, position.partition, header.timestamp_type, record)
        position.offset = max(position.offset, header.next_offset)


def _positions(client: Client, topic: MetadataResponseTopic, arguments: argparse.Namespace) -> list[Position]:
    known = {state.partition_index: state.leader_id for state in topic.partitions}
    wanted = sorted(known) if arguments.partition is None else arguments.partition
    for partition in wanted:
        if partition not in known:
            raise CommandError(f"topic {topic.name} has partitions 0 to {len(known) - 1}")
    positions = [Position(partition, known[partition], 0, None) for partition in wanted]
    isolation = _isolation(arguments)
    starts = _offsets(client, topic, positions, arguments.offset, isolation)
    ends: dict[int, int | None] = dict.fromkeys(wanted)
    if arguments.until is not None or not arguments.follow or arguments.exit:
        ends.update(_offsets(client, topic, positions, arguments.until or "end", isolation))
    return [Position(p.partition, p.leader, starts[p.partition], ends[p.partition]) for p in positions]


def _offsets(
    client: Client, topic: MetadataResponseTopic, positions: list[Position], where: str, isolation: int
) -> dict[int, int]:
    """What `--offset` means for each partition."""
    if where in ("beginning", "earliest"):
        return _list_offsets(client, topic, positions, _EARLIEST, isolation)
    if where in ("end", "latest"):
        return _list_offsets(client, topic, positions, _LATEST, isolation)
    try:
        number = int(where.removeprefix("s@").removeprefix("e@"))
    except ValueError:
        raise CommandError(f"{where!r} is no offset: write beginning, end, N, -N or s@TIMESTAMP") from None
    if "@" in where:
        found = _list_offsets(client, topic, positions, number, isolation)
        ends = _list_offsets(client, topic, positions, _LATEST, isolation)
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}
    if not where.startswith("-"):
        return {position.partition: number for position in positions}
    ends = _list_offsets(client, topic, positions, _LATEST, isolation)
    starts = _list_offsets(client, topic, positions, _EARLIEST, isolation)
    return {partition: max(end + number, starts[partition]) for partition, end in ends.items()}


def _list_offsets(
    client: Client, topic: MetadataResponseTopic, positions: list[Position], timestamp: int, isolation: int
) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for leader in sorted({position.leader for position in positions}):
        partitions = [
            ListOffsetsPartition(partition_index=p.partition, timestamp=timestamp)
            for p in positions
            if p.leader == leader
        ]
        named = ListOffsetsTopic(name=topic.name or "", partitions=partitions)
        response = client.broker(leader).call(
            ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[named])
        )
        for answer in response.topics[0].partitions:
            if answer.error_code:
                raise BrokerError(answer.error_code, what=f"{topic.name}-{answer.partition_index}")
            offsets[answer.partition_index] = answer.offset
    return offsets


def _find_leaders(client: Client, topic: str, positions: list[Position]) -> None:
    leaders = {state.partition_index: state.leader_id for state in client.topic(topic).partitions}
    for position in positions:
        position.leader = leaders.get(position.partition, position.leader)

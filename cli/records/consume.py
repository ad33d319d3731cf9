"""`ottla consume`: print records, in the manner of kcat -C."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ottla.cli import CommandError, options, where
from ottla.cli.connection import connected
from ottla.cli.records.consume_group import GroupOffsets
from ottla.cli.records.filters import add_filters, filter_of
from ottla.cli.records.format import FORMAT_HELP, Consumed, Formatter, format_json, parse_format
from ottla.cli.records.schema_formats import Formats, add_formats, readers
from ottla.client.aborted_transactions import AbortedTransactions
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.topics.metadata import MetadataResponseTopic
from ottla.kproto.records import iter_batches, iter_records

_FETCH_BYTES = 8 * 1024 * 1024
_FOLLOW_WAIT_MS = 500
_NO_SESSION_EPOCH = -1


@dataclass(slots=True)
class Position:
    """How far one partition has been read, and where reading is to end (None: never)."""

    partition: int
    leader: int
    offset: int
    end_offset: int | None

    @property
    def is_done(self) -> bool:
        return self.end_offset is not None and self.offset >= self.end_offset


class _ExplainFormat(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(FORMAT_HELP, end="")
        parser.exit()


def configure(parser: argparse.ArgumentParser) -> None:
    where.allow_minus(parser)
    parser.add_argument("topic", help="the topic to read")
    parser.add_argument("-p", "--partition", type=options.number, action="append", help="default: all; may be repeated")
    parser.add_argument(
        "-o",
        "--offset",
        default="beginning",
        metavar="WHERE",
        help=f"where to begin: {where.HELP}; default: beginning",
    )
    parser.add_argument(
        "--until", metavar="WHERE", help="where to stop, written like --offset; default: the current end"
    )
    parser.add_argument(
        "-g",
        "--group",
        metavar="NAME",
        help="start from this group's committed offsets, and commit what was printed; the group must have no members",
    )
    parser.add_argument("--follow", action="store_true", help="wait for new records instead of stopping at the end")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end (the default without --follow)")
    add_filters(parser)
    parser.add_argument("-c", "--count", type=options.count, help="stop after this many records (default: all)")
    parser.add_argument("-f", "--format", help="such as '%%t %%p %%o %%k %%s\\n'; see `ottla consume --help-format`")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="print the key as well, followed by this")
    parser.add_argument(
        "-D", "--delimiter", default="\\n", metavar="TEXT", help="what separates records (default: newline)"
    )
    parser.add_argument(
        "-J", "--json", action="store_true", help='a JSON object for each record; bytes as {"base64": …}'
    )
    add_formats(parser, writes=False)
    parser.add_argument(
        "--skip-undecodable",
        action="store_true",
        help="go on after a key or value that cannot be decoded, with a line on stderr",
    )
    parser.add_argument("-u", "--unbuffered", action="store_true", help="write each record at once")
    parser.add_argument("--read-committed", action="store_true", help="skip records of open and aborted transactions")
    parser.add_argument("--help-format", action=_ExplainFormat, nargs=0, help="explain --format, and exit")
    options.add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    formatter = _formatter(arguments)
    with connected(arguments) as client:
        topic = client.topic(arguments.topic)
        group = GroupOffsets(client, arguments.group, arguments.timeout) if arguments.group is not None else None
        positions = _positions(client, topic, arguments, group)
        output = _standard_output()
        records = _consume(client, topic, positions, _isolation(arguments), output.flush)
        formats = readers(arguments, client)
        if formats.key is not None or formats.value is not None:
            records = _decoded(records, formats, output, skips=arguments.skip_undecodable)
        try:
            _print(records, formatter, arguments, group, positions, output)
        except KeyboardInterrupt:
            _commit(group, arguments.topic, positions, output)
            raise
        _commit(group, arguments.topic, positions, output)
    return 0


def _print(
    records: Iterator[Consumed],
    formatter: Formatter,
    arguments: argparse.Namespace,
    group: GroupOffsets | None,
    positions: list[Position],
    output: BinaryIO,
) -> None:
    progress = options.Progress("read", enabled=not sys.stdout.isatty())
    keep = filter_of(arguments)
    printed = records if keep is None else (consumed for consumed in records if keep(consumed.record))
    for number, consumed in enumerate(printed, 1):
        text = formatter(consumed)
        output.write(text)
        if arguments.unbuffered:
            output.flush()
        progress.add(1, len(text))
        if number == arguments.count:
            break
        if group is not None and group.is_due:
            _commit(group, arguments.topic, positions, output)
    output.flush()
    progress.finish()


def _decoded(records: Iterator[Consumed], formats: Formats, output: BinaryIO, *, skips: bool) -> Iterator[Consumed]:
    """The records with what their schemas say in the place of their bytes."""
    for consumed in records:
        record = consumed.record
        try:
            key = record.key if formats.key is None or record.key is None else formats.key(record.key)
            value = record.value if formats.value is None or record.value is None else formats.value(record.value)
        except CommandError as error:
            problem = f"{consumed.topic}-{consumed.partition} at {record.offset}: {error}"
            output.flush()
            if not skips:
                raise CommandError(f"{problem} (--skip-undecodable goes on)") from None
            print(problem, file=sys.stderr)
            continue
        yield consumed._replace(record=record._replace(key=key, value=value))


def _standard_output() -> BinaryIO:
    """The buffered output for records, also under PYTHONUNBUFFERED, by which each record would be written by itself."""
    output = sys.stdout.buffer
    if not isinstance(output, io.RawIOBase):
        return output
    return open(output.fileno(), "wb", closefd=False)


def _commit(group: GroupOffsets | None, topic: str, positions: list[Position], output: BinaryIO) -> None:
    """Commit what has been printed, and only that: if something could not be written, this is not reached."""
    output.flush()
    if group is not None:
        group.commit({TopicPartition(topic, position.partition): position.offset for position in positions})


def _formatter(arguments: argparse.Namespace) -> Formatter:
    if arguments.json:
        return format_json
    if arguments.format is not None:
        return parse_format(arguments.format)
    end = arguments.delimiter
    return parse_format(f"%s{end}" if arguments.key_delimiter is None else f"%k{arguments.key_delimiter}%s{end}")


def _consume(
    client: Client,
    topic: MetadataResponseTopic,
    positions: list[Position],
    isolation: int,
    before_waiting: Callable[[], object],
) -> Iterator[Consumed]:
    """The records from the positions on; each position is always right after the last record that was yielded."""
    while waiting := [position for position in positions if not position.is_done]:
        before_waiting()
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


def _positions(
    client: Client, topic: MetadataResponseTopic, arguments: argparse.Namespace, group: GroupOffsets | None
) -> list[Position]:
    leaders = {state.partition_index: state.leader_id for state in topic.partitions}
    wanted = sorted(leaders) if arguments.partition is None else sorted(set(arguments.partition))
    if not leaders.keys() >= set(wanted):
        raise CommandError(f"topic {topic.name} has partitions 0 to {len(leaders) - 1}")
    partitions = [TopicPartition(topic.name or "", number) for number in wanted]

    def offsets(place: str) -> dict[TopicPartition, int]:
        return where.offsets(client, partitions, place, read_committed=arguments.read_committed)

    starts = offsets(arguments.offset)
    if group is not None:
        # What retention has removed in the meantime cannot be read.
        first = offsets("beginning")
        known = {each: offset for each, offset in group.committed.items() if each in starts}
        starts |= {each: max(offset, first[each]) for each, offset in known.items()}
    ends: dict[TopicPartition, int] = {}
    if arguments.until is not None or not arguments.follow or arguments.exit:
        ends = offsets(arguments.until or "end")
    return [Position(each.partition, leaders[each.partition], starts[each], ends.get(each)) for each in partitions]


def _find_leaders(client: Client, topic: str, positions: list[Position]) -> None:
    leaders = {state.partition_index: state.leader_id for state in client.topic(topic).partitions}
    for position in positions:
        position.leader = leaders.get(position.partition, position.leader)

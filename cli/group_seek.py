"""`ottla group seek`: move the offsets of a group that has no members."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from ottla.cli import CommandError, options
from ottla.cli.group_describe import shown
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.group_state import Coordinator, committed_offsets, find_group
from ottla.client.offsets import EARLIEST, LATEST, TopicPartition, offsets_at, partitions_of
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_COMMIT_BY_NAME: Final = 9


def seek(client: Client, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(client, arguments.timeout)
    group_id = arguments.group
    group = find_group(coordinator, group_id)
    if group is not None and group.members:
        raise _in_use(group_id, f"has {len(group.members)} members" if len(group.members) > 1 else "has a member")
    committed = committed_offsets(coordinator, group_id)
    wanted = _wanted(client, arguments.partitions) if arguments.partitions else sorted(committed)
    if not wanted:
        raise CommandError(f"group {group_id} has no offsets: name the topics to seek in")
    target = _targets(client, wanted, arguments.to)
    if not arguments.dry_run:
        _commit(coordinator, group_id, target)
    moves = [(partition, committed.get(partition), offset) for partition, offset in sorted(target.items())]
    if arguments.json:
        print(json.dumps([{**p._asdict(), "from": before, "to": after} for p, before, after in moves], indent=2))
        return
    options.print_table(
        ("TOPIC", "PARTITION", "FROM", "TO"),
        ((partition.topic, partition.partition, shown(before), after) for partition, before, after in moves),
    )


def _in_use(group_id: str, why: str) -> CommandError:
    return CommandError(f"group {group_id} {why}: stop its consumers first, they would not notice the new offsets")


def _wanted(client: Client, texts: Iterable[str]) -> list[TopicPartition]:
    """The partitions that `topic` or `topic:0,2` name."""
    wanted: set[TopicPartition] = set()
    for text in texts:
        topic, colon, indexes = text.partition(":")
        known = partitions_of(client, topic)
        if not colon:
            wanted.update(known)
            continue
        try:
            named = {TopicPartition(topic, int(index)) for index in indexes.split(",")}
        except ValueError:
            raise CommandError(f"{text!r} names no partitions: write topic or topic:0,1") from None
        if not named <= set(known):
            raise CommandError(f"topic {topic} has partitions 0 to {len(known) - 1}")
        wanted |= named
    return sorted(wanted)


def _targets(client: Client, partitions: list[TopicPartition], where: str) -> dict[TopicPartition, int]:
    """What `--to` means for each partition, kept between the start and the end of its log."""
    starts, ends = offsets_at(client, partitions, EARLIEST), offsets_at(client, partitions, LATEST)
    missing = [partition for partition in partitions if partition not in starts or partition not in ends]
    if missing:
        raise CommandError(f"{missing[0].topic}-{missing[0].partition} is not there or has no leader now")
    found = _positions(client, partitions, where, starts, ends)
    return {each: min(max(found[each], starts[each]), ends[each]) for each in partitions}


def _positions(
    client: Client,
    partitions: list[TopicPartition],
    where: str,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    if where in ("earliest", "beginning"):
        return starts
    if where in ("latest", "end"):
        return ends
    try:
        number = int(where)
    except ValueError:
        found = offsets_at(client, partitions, _timestamp_ms(where))
        return {each: ends[each] if found.get(each, -1) < 0 else found[each] for each in partitions}
    return {each: ends[each] + number if where.startswith("-") else number for each in partitions}


def _timestamp_ms(text: str) -> int:
    try:
        if text.startswith("s@"):
            return int(text[2:])
        # Without a zone it is local time, as in `date`.
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise CommandError(
            f"{text!r} is no place: write earliest, latest, an offset, -N, a time like 2026-01-31T12:00:00Z or s@MS"
        ) from None


def _commit(coordinator: Coordinator, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, index), offset in offsets.items():
        named = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic))
        named.partitions.append(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        )
    answer = coordinator.call(
        group_id,
        OffsetCommitRequest(group_id=group_id, topics=list(topics.values())),
        lambda answer: int(answer.topics[0].partitions[0].error_code),
        at_most=_COMMIT_BY_NAME,
    )
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
                raise _in_use(group_id, "has members now")
            if partition.error_code:
                raise BrokerError(partition.error_code, what=f"{topic.name}-{partition.partition_index}")

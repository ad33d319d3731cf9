"""`ottla group seek`: move the offsets of a group that has no members."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping

from ottla.cli import CommandError, options
from ottla.cli.groups.commit import commit, in_use
from ottla.cli.groups.describe import shown
from ottla.cli.where import offsets
from ottla.client.admin.group_state import SHARE, Coordinator, committed_offsets, find_group
from ottla.client.admin.share_state import move_share_group, share_positions
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.offsets import TopicPartition, partitions_of
from ottla.kproto.errors import ErrorCode


def seek(client: Client, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(client, arguments.timeout)
    group_id = arguments.group
    group = find_group(coordinator, group_id)
    if group is not None and group.members:
        raise in_use(group_id, f"has {len(group.members)} members" if len(group.members) > 1 else "has a member")
    is_share_group = group is not None and group.group_type == SHARE
    if is_share_group:
        committed = {each: at.start_offset for each, at in share_positions(coordinator, group_id).items()}
    else:
        committed = committed_offsets(coordinator, group_id)
    wanted = partitions_named(client, arguments.partitions) if arguments.partitions else sorted(committed)
    if not wanted:
        raise CommandError(f"group {group_id} has no offsets: name the topics to seek in")
    target = _targets(client, wanted, arguments.to)
    if not arguments.dry_run:
        (_move_share_group if is_share_group else commit)(coordinator, group_id, target)
    moves = [(partition, committed.get(partition), offset) for partition, offset in sorted(target.items())]
    if arguments.json:
        print(json.dumps([{**p._asdict(), "from": before, "to": after} for p, before, after in moves], indent=2))
        return
    options.print_table(
        ("TOPIC", "PARTITION", "FROM", "TO"),
        ((partition.topic, partition.partition, shown(before), after) for partition, before, after in moves),
    )


def _move_share_group(coordinator: Coordinator, group_id: str, target: Mapping[TopicPartition, int]) -> None:
    try:
        move_share_group(coordinator, group_id, target)
    except BrokerError as error:
        if error.code is ErrorCode.NON_EMPTY_GROUP:
            raise in_use(group_id, "has members now") from None
        raise


def partitions_named(client: Client, texts: Iterable[str]) -> list[TopicPartition]:
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
    """The offset that `--to` means for each partition, limited to what its log contains."""
    starts, ends = offsets(client, partitions, "beginning"), offsets(client, partitions, "end")
    found = offsets(client, partitions, where)
    return {each: min(max(found[each], starts[each]), ends[each]) for each in partitions}

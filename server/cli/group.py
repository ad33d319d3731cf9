"""`ottla group`: list, describe, seek and delete groups, of the classic and of the consumer protocol."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.list_groups import ListGroupsRequest
from ottla.kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.server.cli import CommandError, options
from ottla.server.cli.client import BrokerError, Client, bootstrap_servers
from ottla.server.cli.group_state import (
    EARLIEST,
    LATEST,
    Coordinator,
    Group,
    Partition,
    committed_offsets,
    find_group,
    offsets_at,
    partitions_of,
)

HAS_ACTIONS = True

_COMMIT_BY_NAME: Final = 9


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")

    listing = actions.add_parser("list", help="list groups")
    listing.add_argument("--state", action="append", default=[], help="only groups in this state; may be repeated")
    listing.add_argument("--type", action="append", default=[], choices=["classic", "consumer"], help="only this type")
    options.add_json(listing)
    listing.set_defaults(act=_list)

    describe = actions.add_parser("describe", help="show offsets, lag, members and their assignment")
    describe.add_argument("groups", nargs="+", metavar="group")
    options.add_json(describe)
    describe.set_defaults(act=_describe)

    seek = actions.add_parser("seek", help="move the offsets of a group that has no members")
    seek.add_argument("group")
    seek.add_argument(
        "partitions",
        nargs="*",
        metavar="topic[:partition,…]",
        help="default: all partitions that the group has offsets of",
    )
    seek.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help="earliest, latest, an offset, -N (N before the end), a time (2026-01-31T12:00:00Z) or s@TIMESTAMP in ms",
    )
    seek.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    options.add_json(seek)
    seek.set_defaults(act=_seek)

    delete = actions.add_parser("delete", help="delete groups and all their offsets")
    delete.add_argument("groups", nargs="+", metavar="group")
    delete.add_argument("--if-exists", action="store_true", help="do not fail over a group that does not exist")
    delete.set_defaults(act=_delete)

    for action in (listing, describe, seek, delete):
        options.add_bootstrap(action)


def run(arguments: argparse.Namespace) -> int:
    with Client(bootstrap_servers(arguments.bootstrap), arguments.timeout) as client:
        arguments.act(client, arguments)
    return 0


# list


def _list(client: Client, arguments: argparse.Namespace) -> None:
    request = ListGroupsRequest(states_filter=arguments.state, types_filter=arguments.type)
    listed: list[Any] = []
    for broker in client.metadata([]).brokers:
        answer = client.broker(broker.node_id).call(request)
        if answer.error_code:
            raise BrokerError(answer.error_code, what=f"the groups of broker {broker.node_id}")
        listed += answer.groups
    listed.sort(key=lambda group: group.group_id)
    if arguments.json:
        names = ("group_id", "group_type", "group_state", "protocol_type")
        print(json.dumps([{_JSON_NAMES[n]: getattr(group, n) for n in names} for group in listed], indent=2))
        return
    options.print_table(
        ("GROUP", "TYPE", "STATE", "PROTOCOL"),
        ((g.group_id, g.group_type, g.group_state, g.protocol_type or "-") for g in listed),
    )


_JSON_NAMES: Final = {
    "group_id": "group",
    "group_type": "type",
    "group_state": "state",
    "protocol_type": "protocol",
}


# describe


class Progress(NamedTuple):
    """How far a group is in one partition. None: not committed, or the partition is gone."""

    partition: Partition
    offset: int | None
    end_offset: int | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        if self.offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.offset)


def _describe(client: Client, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(client, arguments.timeout)
    described = []
    for group_id in arguments.groups:
        group = find_group(coordinator, group_id)
        if group is None:
            raise CommandError(f"there is no group {group_id!r}: see `ottla group list`")
        described.append((group, _progress(client, coordinator, group)))
    if arguments.json:
        print(json.dumps([_as_json(group, progress) for group, progress in described], indent=2))
        return
    for group, progress in described:
        _print_group(group, progress)


def _progress(client: Client, coordinator: Coordinator, group: Group) -> list[Progress]:
    committed = committed_offsets(coordinator, group.group_id)
    holders = {partition: member.member_id for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | holders.keys())
    ends = offsets_at(client, partitions, LATEST)
    return [Progress(each, committed.get(each), ends.get(each), holders.get(each)) for each in partitions]


def _print_group(group: Group, progress: list[Progress]) -> None:
    epoch = "" if group.epoch is None else f"  epoch {group.epoch}"
    lag = sum(each.lag or 0 for each in progress)
    print(
        f"{group.group_id}  {group.group_type}  {group.state}{epoch}  assignor {group.assignor or '-'}  "
        f"coordinator {group.coordinator}  members {len(group.members)}  lag {lag}"
    )
    options.print_table(
        ("  TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER"),
        (
            (
                f"  {each.partition.topic}",
                each.partition.partition,
                _shown(each.offset),
                _shown(each.end_offset),
                _shown(each.lag),
                each.member_id or "-",
            )
            for each in progress
        ),
    )
    if group.members:
        options.print_table(
            ("  MEMBER", "INSTANCE", "CLIENT", "HOST", "ASSIGNMENT"),
            (
                (f"  {m.member_id}", m.instance_id or "-", m.client_id, m.host, _ranges(m.assignment) or "-")
                for m in sorted(group.members, key=lambda member: member.member_id)
            ),
        )


def _shown(value: int | None) -> str:
    return "-" if value is None else str(value)


def _ranges(partitions: Iterable[Partition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in sorted(by_topic.items()))


def _as_json(group: Group, progress: list[Progress]) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "epoch": group.epoch,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "offsets": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "offset": each.offset,
                "end_offset": each.end_offset,
                "lag": each.lag,
                "member": each.member_id,
            }
            for each in progress
        ],
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "assignment": [{"topic": topic, "partition": index} for topic, index in member.assignment],
            }
            for member in sorted(group.members, key=lambda member: member.member_id)
        ],
    }


# seek


def _seek(client: Client, arguments: argparse.Namespace) -> None:
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
        ((partition.topic, partition.partition, _shown(before), after) for partition, before, after in moves),
    )


def _in_use(group_id: str, why: str) -> CommandError:
    return CommandError(f"group {group_id} {why}: stop its consumers first, they would not notice the new offsets")


def _wanted(client: Client, texts: Iterable[str]) -> list[Partition]:
    """The partitions that `topic` or `topic:0,2` name."""
    wanted: set[Partition] = set()
    for text in texts:
        topic, colon, indexes = text.partition(":")
        known = partitions_of(client, topic)
        if not colon:
            wanted.update(known)
            continue
        try:
            named = {Partition(topic, int(index)) for index in indexes.split(",")}
        except ValueError:
            raise CommandError(f"{text!r} names no partitions: write topic or topic:0,1") from None
        if not named <= set(known):
            raise CommandError(f"topic {topic} has partitions 0 to {len(known) - 1}")
        wanted |= named
    return sorted(wanted)


def _targets(client: Client, partitions: list[Partition], where: str) -> dict[Partition, int]:
    """What `--to` means for each partition, kept between the start and the end of its log."""
    starts, ends = offsets_at(client, partitions, EARLIEST), offsets_at(client, partitions, LATEST)
    missing = [partition for partition in partitions if partition not in starts or partition not in ends]
    if missing:
        raise CommandError(f"{missing[0].topic}-{missing[0].partition} is not there or has no leader now")
    found = _positions(client, partitions, where, starts, ends)
    return {each: min(max(found[each], starts[each]), ends[each]) for each in partitions}


def _positions(
    client: Client,
    partitions: list[Partition],
    where: str,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
) -> Mapping[Partition, int]:
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


def _commit(coordinator: Coordinator, group_id: str, offsets: Mapping[Partition, int]) -> None:
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


# delete


def _delete(client: Client, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(client, arguments.timeout)
    failures: list[str] = []
    for group_id in arguments.groups:
        request = DeleteGroupsRequest(groups_names=[group_id])
        answer = coordinator.call(group_id, request, lambda answer: int(answer.results[0].error_code))
        code = answer.results[0].error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND and arguments.if_exists:
            continue
        if code == ErrorCode.NON_EMPTY_GROUP:
            failures.append(f"group {group_id} has members: stop its consumers first")
        elif code == ErrorCode.GROUP_ID_NOT_FOUND:
            failures.append(f"there is no group {group_id!r}: see `ottla group list`")
        elif code:
            failures.append(str(BrokerError(code, what=f"group {group_id}")))
    if failures:
        raise CommandError("; ".join(failures))

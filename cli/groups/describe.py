"""`ottla group describe`: a group's offsets and lag, and who reads what, as tables or as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ottla.cli import CommandError, options
from ottla.cli.connection import security
from ottla.cli.http_page import read_page
from ottla.client.admin.group_state import (
    SHARE,
    STREAMS,
    Coordinator,
    Group,
    Member,
    Subtopology,
    committed_offsets,
    find_group,
)
from ottla.client.admin.share_state import Delivered, dead_letter_topic, share_deliveries, share_positions
from ottla.client.admin.topology_description import drawn
from ottla.client.client import Client
from ottla.client.offsets import LATEST, TopicPartition, offsets_at

_SHOWN_DELIVERIES: Final = 20
"""In the table, for one partition; --json has all of them."""


class DeadLetters(NamedTuple):
    """The dead-letter topic of a share group, and how many letters were written (None: the HTTP port was not asked)."""

    topic: str
    written: int | None = None


class Progress(NamedTuple):
    """How far a group is in one partition. None: not committed, or the partition is gone.

    For a share group, the offset is that of the first unfinished record, `unfinished` is how many there are,
    `deliveries` is what is stored about the records from there on (None: unknown), and `held` is how many of them each
    member has (None: the HTTP port was not asked, or does not say).
    """

    partition: TopicPartition
    offset: int | None
    end_offset: int | None
    member_id: str | None
    unfinished: int | None = None
    deliveries: Sequence[Delivered] | None = None
    held: Mapping[str, int] | None = None

    @property
    def lag(self) -> int | None:
        if self.unfinished is not None:
            return self.unfinished
        if self.offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.offset)


def describe(client: Client, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(client, arguments.timeout)
    described = []
    for group_id in arguments.groups:
        group = find_group(coordinator, group_id)
        if group is None:
            raise CommandError(f"there is no group {group_id!r}: see `ottla group list`")
        progress = progress_of(client, coordinator, group)
        letters = None
        if group.group_type == SHARE:
            letters = DeadLetters(dead_letter_topic(client, group_id))
            if arguments.http is not None:
                told = _told_by_http(arguments, group_id)
                progress = _with_held(progress, _held(told))
                letters = letters._replace(written=told["dead_letters"])
        described.append((group, progress, letters))
    if arguments.json:
        print(json.dumps([_as_json(*each) for each in described], indent=2))
        return
    for each in described:
        _print_group(*each)


def _told_by_http(arguments: argparse.Namespace, group_id: str) -> Any:
    text = read_page(arguments.http, f"/share-group?group={quote(group_id)}", security(arguments.command_config))
    return json.loads(text)


def _held(told: Any) -> dict[TopicPartition, Mapping[str, int]]:
    """The records that members hold, of partitions that are led by the nodes behind `--http`."""
    return {TopicPartition(each["topic"], each["partition"]): each["held"] for each in told["partitions"]}


def _with_held(progress: Iterable[Progress], held: Mapping[TopicPartition, Mapping[str, int]]) -> list[Progress]:
    return [each._replace(held=held.get(each.partition)) for each in progress]


def _held_by(member_id: str, progress: Iterable[Progress]) -> int | None:
    """How many records a member holds in all partitions; None if that is not known for any."""
    told = [each.held for each in progress if each.held is not None]
    return sum(held.get(member_id, 0) for held in told) if told else None


def _share_progress(client: Client, coordinator: Coordinator, group: Group) -> list[Progress]:
    """A partition may be assigned to several members; all are named."""
    positions = share_positions(coordinator, group.group_id)
    holders: dict[TopicPartition, list[str]] = {}
    for member in group.members:
        for partition in member.assignment:
            holders.setdefault(partition, []).append(member.member_id)
    partitions = sorted(positions.keys() | holders.keys())
    deliveries = share_deliveries(client, group.group_id, positions)
    ends = offsets_at(client, partitions, LATEST)
    progress = []
    for each in partitions:
        position = positions.get(each)
        progress.append(
            Progress(
                each,
                None if position is None else position.start_offset,
                ends.get(each),
                " ".join(sorted(holders.get(each, ()))) or None,
                None if position is None else position.lag,
                deliveries.get(each),
            )
        )
    return progress


def progress_of(client: Client, coordinator: Coordinator, group: Group) -> list[Progress]:
    """How far a group is in each partition that it has offsets of, or that a member has."""
    if group.group_type == SHARE:
        return _share_progress(client, coordinator, group)
    committed = committed_offsets(coordinator, group.group_id)
    holders = {partition: member.member_id for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | holders.keys())
    ends = offsets_at(client, partitions, LATEST)
    return [Progress(each, committed.get(each), ends.get(each), holders.get(each)) for each in partitions]


def _print_group(group: Group, progress: list[Progress], letters: DeadLetters | None) -> None:
    _print_head(group, progress, letters)
    _print_progress(progress)
    if any(each.deliveries for each in progress):
        options.print_table(("  TOPIC", "PARTITION", "RECORDS", "STATE", "DELIVERIES"), _deliveries(progress))
    if group.members:
        _print_members(group, progress)
    if group.topology:
        _print_topology(group.topology)
    for wired in group.description or ():
        print("  GLOBAL STORE" if wired.name is None else f"  SUBTOPOLOGY {wired.name}")
        for line in drawn(wired):
            print(f"    {line}")


def _print_head(group: Group, progress: list[Progress], letters: DeadLetters | None) -> None:
    epoch = "" if group.epoch is None else f"  epoch {group.epoch}"
    if group.target_epoch is not None and group.target_epoch != group.epoch:
        epoch += f" (assigned: {group.target_epoch})"
    if group.topology_epoch is not None:
        epoch += f"  topology epoch {group.topology_epoch}"
    lag = sum(each.lag or 0 for each in progress)
    print(
        f"{group.group_id}  {group.group_type}  {group.state}{epoch}  assignor {group.assignor or '-'}  "
        f"coordinator {group.coordinator}  members {len(group.members)}  lag {lag}"
    )
    if letters is not None and letters.topic:
        written = "" if letters.written is None else f", {letters.written} written"
        print(f"  dead letters to {letters.topic}{written}")


def _print_progress(progress: list[Progress]) -> None:
    options.print_table(
        ("  TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER"),
        (
            (
                f"  {each.partition.topic}",
                each.partition.partition,
                shown(each.offset),
                shown(each.end_offset),
                shown(each.lag),
                each.member_id or "-",
            )
            for each in progress
        ),
    )


def _print_members(group: Group, progress: list[Progress]) -> None:
    assigned = "TASKS" if group.group_type == STREAMS else "ASSIGNMENT"
    tells_held = any(each.held is not None for each in progress)
    options.print_table(
        ("  MEMBER", "EPOCH", "INSTANCE", "CLIENT", "HOST", *(["HELD"] if tells_held else []), assigned),
        (
            (
                f"  {m.member_id}",
                shown(m.epoch),
                m.instance_id or "-",
                m.client_id,
                m.host,
                *([_held_by(m.member_id, progress)] if tells_held else []),
                _assigned(m),
            )
            for m in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


def _print_topology(topology: Iterable[Subtopology]) -> None:
    options.print_table(
        ("  SUBTOPOLOGY", "READS", "REPARTITION", "CHANGELOGS"),
        (
            (
                f"  {part.name}",
                " ".join(part.sources) or "-",
                " ".join(part.repartition_sources) or "-",
                " ".join(part.changelogs) or "-",
            )
            for part in topology
        ),
    )


def _deliveries(progress: Iterable[Progress]) -> Iterator[tuple[object, ...]]:
    for each in progress:
        runs = each.deliveries or ()
        for run in runs[:_SHOWN_DELIVERIES]:
            first, last = run.first_offset, run.last_offset
            records = f"{first}" if first == last else f"{first}-{last}"
            yield f"  {each.partition.topic}", each.partition.partition, records, run.state, run.delivery_count
        if len(runs) > _SHOWN_DELIVERIES:
            left = len(runs) - _SHOWN_DELIVERIES
            yield f"  {each.partition.topic}", each.partition.partition, "…", f"{left} more: see --json", "-"


def _assigned(member: Member) -> str:
    """A member's partitions, or its tasks: `active 0:0,1 standby 1:0`."""
    tasks = " ".join(
        f"{role} " + " ".join(f"{name}:{','.join(map(str, indexes))}" for name, indexes in sorted(tasks.items()))
        for role, tasks in member.tasks.items()
    )
    return tasks or _ranges(member.assignment) or "-"


def shown(value: int | None) -> str:
    return "-" if value is None else str(value)


def _ranges(partitions: Iterable[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in sorted(by_topic.items()))


def _as_json(group: Group, progress: list[Progress], letters: DeadLetters | None) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
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
                **({"deliveries": _deliveries_json(each), "held": each.held} if group.group_type == SHARE else {}),
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
                **({"tasks": member.tasks} if group.group_type == STREAMS else {}),
                **({"held": _held_by(member.member_id, progress)} if group.group_type == SHARE else {}),
            }
            for member in sorted(group.members, key=lambda member: member.member_id)
        ],
        **({"dead_letters": letters._asdict()} if letters is not None else {}),
        **(
            {
                "topology_epoch": group.topology_epoch,
                "topology": [asdict(part) for part in group.topology],
                "description": None if group.description is None else [asdict(part) for part in group.description],
            }
            if group.group_type == STREAMS
            else {}
        ),
    }


def _deliveries_json(progress: Progress) -> list[dict[str, Any]] | None:
    return None if progress.deliveries is None else [run._asdict() for run in progress.deliveries]

"""Changing by hand where a group continues, with a preview; and deleting a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import RedirectResponse

from ottla.client.admin.group_state import SHARE
from ottla.client.offsets import TopicPartition as ClientPartition
from ottla.console.forms import FormError, read_form
from ottla.console.groups import coordinator_of, describe
from ottla.console.lag import committed
from ottla.console.messages.readable import Readable, find_readable
from ottla.console.messages.times import TimeError, read_time_ms
from ottla.console.nodes import NodeError, ask
from ottla.console.parameters import as_integer, text
from ottla.console.rendering import url
from ottla.console.shares import share_lags
from ottla.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.replica.errors import ReplicaError
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.groups import GroupView
    from ottla.console.visitors import Visitor

MAX_OFFSETS: Final = 1_000
"""How many partitions can be moved at once."""
_CHANGE_SECONDS: Final = 10.0
_COMMIT_BY_NAME: Final = 9

WAYS: Final = {"start": "the first record", "end": "the end", "time": "a time", "offset": "an offset"}


class ChangeError(Exception):
    """The change is refused; the text is for the form."""


class Move(NamedTuple):
    """A group's committed offset in one partition, before and after; `now` is None if it has committed nothing."""

    topic: str
    partition: int
    now: int | None
    then: int


class Draft(NamedTuple):
    """The form as it was filled in: which topic (if none, all for which the group has offsets), and where to."""

    topic: str = ""
    to: str = "start"
    time: str = ""
    offset: str = ""


async def manage(console: Console, request: Request) -> Response:
    """The forms that change a group, their preview, and the change itself."""
    group_id = text(request, "id")
    try:
        group = await describe(console.broker, group_id)
    except GroupIdNotFoundError:
        return await console.not_found(request, f"group {group_id}")
    except (CoordinatorError, NodeError) as error:
        return await console.not_found(request, f"answer for group {group_id} yet: {error}")
    draft, moves, problem, status = Draft(), list[Move](), "", 200
    if request.method == "POST":
        try:
            fields = await read_form(request, console.renderer.tokens)
            visitor = console.visitor(request)
            if fields.get("action") == "delete":
                visitor.require(AclOperation.DELETE, AclResource.GROUP, group_id)
                await _delete(console, group_id, fields.get("name", ""))
                return RedirectResponse(url("groups"), 303)
            draft = Draft(*(str(fields.get(name, default)).strip() for name, default in Draft()._asdict().items()))
            visitor.require(AclOperation.READ, AclResource.GROUP, group_id)
            if draft.topic:  # before anything says whether it exists
                visitor.require(AclOperation.READ, AclResource.TOPIC, draft.topic)
            moves = await _plan(console, visitor, group, draft)
            for topic in sorted({move.topic for move in moves}):
                visitor.require(AclOperation.READ, AclResource.TOPIC, topic)
            if fields.get("action") == "move":
                await (_begin_again if group.protocol == SHARE else _commit)(console, group_id, moves)
                return RedirectResponse(url("group", id=group_id), 303)
        except FormError as error:
            problem, status = str(error), error.status
        except (ChangeError, NodeError) as error:
            problem, status = str(error), 422
    return await console.renderer.page(
        request,
        "manage_group.html",
        status=status,
        section="groups",
        group=group,
        draft=draft,
        moves=moves,
        problem=problem,
        ways=WAYS,
    )


async def _plan(console: Console, visitor: Visitor, group: GroupView, draft: Draft) -> list[Move]:
    """The changes that the form would make. Raises ChangeError or NodeError."""
    if group.members:
        raise ChangeError("The group has members, which would continue where they are: stop them first.")
    now = {
        (topic, index): offset
        for (topic, index), offset in (await _now(console, group)).items()
        if visitor.may_on_topic("DESCRIBE", topic)
    }
    if draft.topic:
        topic = console.broker.metadata.topic(draft.topic)
        if topic is None:
            raise ChangeError(f"There is no topic {draft.topic}.")
        wanted = [(topic.name, number) for number in range(len(topic.partitions))]
    else:
        wanted = sorted(now)
    if not wanted:
        raise ChangeError("The group has no offsets: name a topic.")
    if len(wanted) > MAX_OFFSETS:
        raise ChangeError(f"These are {len(wanted)} partitions, and {MAX_OFFSETS} can be moved at once: name a topic.")
    partitions = await _readable(console, wanted)
    slices = TimeSlice()
    moves = []
    for where in wanted:
        target = await _target(partitions[where], ClientPartition(*where), draft, console.broker.clock.time_ms())
        moves.append(Move(*where, now.get(where), target))
        if slices.is_over:
            await slices.maybe_yield()
    return moves


async def _now(console: Console, group: GroupView) -> dict[tuple[str, int], int]:
    """The group's committed offsets now. Raises ChangeError or NodeError."""
    if group.protocol != SHARE:
        offsets, _ = await committed(console.broker, group.group_id, MAX_OFFSETS + 1)
        return {(where.topic, where.partition): offset for where, offset in offsets}
    try:
        shares = await share_lags(console.broker, group.group_id, MAX_OFFSETS + 1)
    except CoordinatorError as error:
        raise ChangeError(f"The group's offsets are not known now: {error}.") from None
    return {(each.topic, each.partition): each.committed_offset for each in shares.lags}


async def _readable(console: Console, wanted: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Readable]:
    """The partitions by topic and number, all of them. Raises ChangeError."""
    found: dict[tuple[str, int], Readable] = {}
    indexes: dict[str, list[int]] = {}
    for name, number in wanted:
        indexes.setdefault(name, []).append(number)
    for name, numbers in indexes.items():
        topic = console.broker.metadata.topic(name)
        if topic is None:
            raise ChangeError(f"Topic {name} is gone.")
        there = [number for number in numbers if number < len(topic.partitions)]
        partitions, _, problems = await find_readable(console.broker, topic, there, MAX_OFFSETS)
        found.update(((name, each.index), each) for each in partitions)
        missing = [number for number in numbers if (name, number) not in found]
        if missing:
            raise ChangeError(f"{name}-{missing[0]} cannot be read now. {' '.join(problems)}".rstrip())
    return found


async def _target(partition: Readable, where: ClientPartition, draft: Draft, now_ms: int) -> int:
    try:
        return await _offset_in(partition, draft, now_ms)
    except TimeError as error:
        raise ChangeError(str(error)) from None
    except (ReplicaError, StorageError) as error:
        raise ChangeError(f"{where}: {error}.") from None


async def _offset_in(partition: Readable, draft: Draft, now_ms: int) -> int:
    if draft.to == "start":
        return partition.log_start_offset
    if draft.to == "time":
        found = await partition.offset_at(read_time_ms(draft.time, now_ms))
        return partition.high_watermark if found is None else min(found, partition.high_watermark)
    if draft.to == "offset":
        offset = as_integer(draft.offset, -1)
        if offset < 0:
            raise ChangeError(f"{draft.offset or 'Nothing'} is not an offset.")
        return min(max(offset, partition.log_start_offset), partition.high_watermark)
    return partition.high_watermark


async def _commit(console: Console, group_id: str, moves: list[Move]) -> None:
    node_id = coordinator_of(console.broker, group_id)
    if node_id is not None:
        await _commit_there(console, node_id, group_id, moves)
        return
    offsets = {}
    for move in moves:
        topic = console.broker.metadata.topic(move.topic)
        if topic is None:
            raise ChangeError(f"Topic {move.topic} is gone.")
        where = TopicPartition(move.topic, move.partition)
        offsets[where] = OffsetToCommit(move.then, -1, "", topic_id=topic.topic_id)
    try:
        refused = await console.broker.group_coordinator.offsets.commit(group_id, offsets)
    except CoordinatorError as error:
        raise ChangeError(f"The group cannot be changed: {error}.") from None
    for where, reason in refused.items():
        raise ChangeError(f"{where.topic}-{where.partition} was refused: {reason}.")


async def _begin_again(console: Console, group_id: str, moves: list[Move]) -> None:
    """Let a share group begin at other offsets; what was delivered of them is forgotten."""
    topics: dict[str, dict[int, int]] = {}
    for move in moves:
        topics.setdefault(move.topic, {})[move.partition] = move.then
    node_id = coordinator_of(console.broker, group_id)
    if node_id is not None:
        await _begin_again_there(console, node_id, group_id, topics)
        return
    try:
        outcomes = await console.broker.group_coordinator.share_groups.alter_offsets(group_id, topics)
    except CoordinatorError as error:
        raise ChangeError(f"The group cannot be changed: {error}.") from None
    for (topic, partition), refused in outcomes.items():
        if refused is not None:
            raise ChangeError(f"{topic}-{partition} was refused: {refused}.")


async def _begin_again_there(
    console: Console, node_id: int, group_id: str, topics: Mapping[str, Mapping[int, int]]
) -> None:
    named = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index, offset in offsets.items()
            ],
        )
        for name, offsets in topics.items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=named)
    answer = await ask(console.broker, node_id, request, seconds=_CHANGE_SECONDS)
    if answer.error_code:
        raise ChangeError(f"The group cannot be changed: {ErrorCode(answer.error_code).name}.")
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code:
                refused = ErrorCode(each.error_code).name
                raise ChangeError(f"{topic.topic_name}-{each.partition_index} was refused: {refused}.")


async def _commit_there(console: Console, node_id: int, group_id: str, moves: list[Move]) -> None:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for move in moves:
        partition = OffsetCommitRequestPartition(
            partition_index=move.partition, committed_offset=move.then, committed_metadata=""
        )
        topics.setdefault(move.topic, []).append(partition)
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    answer = await ask(console.broker, node_id, request, seconds=_CHANGE_SECONDS, at_most=_COMMIT_BY_NAME)
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                refused = ErrorCode.name_of(each.error_code)
                raise ChangeError(f"{topic.name}-{each.partition_index} was refused: {refused}.")


async def _delete(console: Console, group_id: str, name: str) -> None:
    if name != group_id:
        raise ChangeError(f"Write {group_id} to delete it.")
    node_id = coordinator_of(console.broker, group_id)
    if node_id is not None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        (result,) = (await ask(console.broker, node_id, request, seconds=_CHANGE_SECONDS)).results
        if result.error_code:
            raise ChangeError(f"The group cannot be deleted: {ErrorCode.name_of(result.error_code)}.")
        return
    try:
        await console.broker.group_coordinator.delete_group(group_id)
    except CoordinatorError as error:
        raise ChangeError(f"The group cannot be deleted: {error}.") from None

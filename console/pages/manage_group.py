"""Where a group reads on, changed by hand, with a look at it before; and deleting a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import RedirectResponse

from ottla.console.forms import FormError, read_form
from ottla.console.groups import describe
from ottla.console.lag import partition_lags, shard_of
from ottla.console.parameters import as_integer, text
from ottla.console.rendering import Slices, url
from ottla.console.times import TimeError, read_time_ms
from ottla.server.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.server.coordinator.group.commits import OffsetToCommit
from ottla.server.coordinator.group.offsets import TopicPartition
from ottla.server.metadata.acls import AclOperation, AclResource
from ottla.server.replica.errors import ReplicaError
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.groups import GroupView
    from ottla.storage.log.partition_log import PartitionLog

MAX_OFFSETS: Final = 1_000
"""So many partitions are moved at once."""

WAYS: Final = {"start": "the first record", "end": "the end", "time": "a time", "offset": "an offset"}


class ChangeError(Exception):
    """What was asked for is not done; the text is for the form."""


class Move(NamedTuple):
    """Where a group reads on in one partition, now and then; `now` is None where it has committed nothing."""

    topic: str
    partition: int
    now: int | None
    then: int


class Draft(NamedTuple):
    """The form as it was filled in: which topic (all that the group has offsets of, if none), and where to."""

    topic: str = ""
    to: str = "start"
    time: str = ""
    offset: str = ""


async def manage(console: Console, request: Request) -> Response:
    """The forms that change a group, what they would do, and doing it."""
    group_id = text(request, "id")
    try:
        group = describe(console.broker, group_id)
    except GroupIdNotFoundError:
        return await console.not_found(request, f"group {group_id}")
    except CoordinatorError as error:
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
            moves = await _plan(console, group, draft)
            for topic in sorted({move.topic for move in moves}):
                visitor.require(AclOperation.READ, AclResource.TOPIC, topic)
            if fields.get("action") == "move":
                await _commit(console, group_id, moves)
                return RedirectResponse(url("group", id=group_id), 303)
        except FormError as error:
            problem, status = str(error), error.status
        except ChangeError as error:
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


async def _plan(console: Console, group: GroupView, draft: Draft) -> list[Move]:
    """What the form would change. Raises ChangeError."""
    if group.members:
        raise ChangeError("The group has members, which would go on where they are: stop them first.")
    committed = await _committed(console, group.group_id)
    if draft.topic:
        topic = console.broker.metadata.topic(draft.topic)
        if topic is None:
            raise ChangeError(f"There is no topic {draft.topic}.")
        wanted = [(topic.name, number) for number in range(len(topic.partitions))]
    else:
        wanted = sorted(committed)
    if not wanted:
        raise ChangeError("The group has committed no offsets: name a topic.")
    if len(wanted) > MAX_OFFSETS:
        raise ChangeError(f"These are {len(wanted)} partitions, and {MAX_OFFSETS} can be moved at once: name a topic.")
    slices = Slices()
    moves = []
    for name, number in wanted:
        moves.append(Move(name, number, committed.get((name, number)), await _target(console, name, number, draft)))
        if slices.over:
            await slices.rest()
    return moves


async def _committed(console: Console, group_id: str) -> Mapping[tuple[str, int], int]:
    shard = shard_of(console.broker, group_id)
    if shard is None:
        raise ChangeError("The group's offsets are on another node, or are being loaded.")
    lags = await partition_lags(console.broker, shard, group_id, MAX_OFFSETS + 1)
    return {(lag.topic, lag.partition): lag.committed_offset for lag in lags}


async def _target(console: Console, name: str, number: int, draft: Draft) -> int:
    topic = console.broker.metadata.topic(name)
    if topic is None:
        raise ChangeError(f"Topic {name} is gone.")
    try:
        partition = console.broker.replica_manager.get_partition(topic.topic_id, number)
        partition.require_leader()
        return await _offset_in(partition.log, draft, console.broker.clock.time_ms())
    except TimeError as error:
        raise ChangeError(str(error)) from None
    except (ReplicaError, StorageError) as error:
        raise ChangeError(f"{name}-{number}: {error}.") from None


async def _offset_in(log: PartitionLog, draft: Draft, now_ms: int) -> int:
    if draft.to == "start":
        return log.log_start_offset
    if draft.to == "time":
        found = await log.offset_for_timestamp(read_time_ms(draft.time, now_ms))
        return log.high_watermark if found is None else min(found.offset, log.high_watermark)
    if draft.to == "offset":
        offset = as_integer(draft.offset, -1)
        if offset < 0:
            raise ChangeError(f"{draft.offset or 'Nothing'} is not an offset.")
        return min(max(offset, log.log_start_offset), log.high_watermark)
    return log.high_watermark


async def _commit(console: Console, group_id: str, moves: list[Move]) -> None:
    offsets = {}
    for move in moves:
        topic = console.broker.metadata.topic(move.topic)
        if topic is None:
            raise ChangeError(f"Topic {move.topic} is gone.")
        where = TopicPartition(move.topic, move.partition)
        offsets[where] = OffsetToCommit(move.then, -1, "", topic_id=topic.topic_id)
    try:
        refused = await console.broker.group_coordinator.commit_offsets(group_id, offsets)
    except CoordinatorError as error:
        raise ChangeError(f"The group cannot be changed: {error}.") from None
    for where, reason in refused.items():
        raise ChangeError(f"{where.topic}-{where.partition} was refused: {reason}.")


async def _delete(console: Console, group_id: str, name: str) -> None:
    if name != group_id:
        raise ChangeError(f"Write {group_id} to delete it.")
    try:
        await console.broker.group_coordinator.delete_group(group_id)
    except CoordinatorError as error:
        raise ChangeError(f"The group cannot be deleted: {error}.") from None

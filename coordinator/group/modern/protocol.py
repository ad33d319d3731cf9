"""Common parts of the protocols with one heartbeat: commits of their groups' changes, and the sessions of members."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import trio

from ottla.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError, NotCoordinatorError
from ottla.coordinator.group.modern.group import ModernGroup, ModernMember
from ottla.coordinator.group.naming import who
from ottla.coordinator.group.protocol import GroupProtocol
from ottla.runtime.supervisor import Loop, Tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.coordinator.group.group import Committer
    from ottla.coordinator.group.locks import GroupLocks
    from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
    from ottla.coordinator.group.shard.shards import GroupShards
    from ottla.coordinator.group.topics import GroupTopics
    from ottla.coordinator.replay import CoordinatorRecord
    from ottla.runtime.purgatory import Purgatory
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

Member = ModernMember[Any, Any]
M = TypeVar("M", bound=Member)
G = TypeVar("G", bound=ModernGroup[Any, Any, Any, Any])
B = TypeVar("B")
R = TypeVar("R")


class GroupServices(NamedTuple):
    """The broker's services for a protocol."""

    clock: Clock
    topics: GroupTopics
    purgatory: Purgatory
    nursery: Tasks
    locks: GroupLocks
    shards: GroupShards


class ModernProtocol(GroupProtocol[G], Generic[G, M, B, R]):
    """Answers the heartbeats of one kind of group (`B` with `R`), commits what they change, and removes members that
    are not heard from in time.

    The caller of `heartbeat` and `commit` holds the group's lock.
    """

    def __init__(self, services: GroupServices) -> None:
        self._clock = services.clock
        self._topics = services.topics
        self._purgatory = services.purgatory
        self._nursery = services.nursery
        self._locks = services.locks
        self._shards = services.shards

    @abstractmethod
    async def heartbeat(self, group: G, beat: B) -> R:
        """Take one step with a member. Raises CoordinatorError, and then nothing has changed."""

    @abstractmethod
    def _session_timeout_ms(self, group: G, member: M) -> int:
        """How long a member may be silent."""

    @abstractmethod
    async def _remove(self, group: G, member: M) -> None:
        """Commit that a member is gone. The others get what it had with their next heartbeats."""

    async def commit(self, group: G, written: Sequence[CoordinatorRecord]) -> None:
        """Commit and replay. Shielded: the group's next operation has to see what this one wrote.

        Raises CoordinatorError.
        """
        if group.removed:
            raise NotCoordinatorError(f"group {group.group_id} moved away")
        if written:
            with trio.CancelScope(shield=True):
                await self._shards.write(group.group_id, [*group.predecessor_tombstones, *written])
            group.begun()
        if group.removed:
            raise CoordinatorNotAvailableError(f"group {group.group_id} moved away")

    def validate_offset_commit(
        self, group: G, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> None:
        group.validate_offset_commit(committer, offsets)

    # Sessions

    def prolong(self, group: G, member: M) -> None:
        """The session starts over."""
        is_new = math.isinf(member.deadline)
        member.deadline = trio.current_time() + self._session_timeout_ms(group, member) / 1000
        if is_new:
            self._nursery.start_soon(Loop(self._watch), group, member)

    def resume(self, group: G) -> None:
        for member in group.members.values():
            self.prolong(group, member)

    def close(self, group: G, reason: CoordinatorError) -> None:
        """As `GroupProtocol` says. No request waits here; the next one finds the group removed."""
        group.remove()
        self.end_sessions(group.members.values())

    def end_sessions(self, members: Iterable[Member]) -> None:
        """End the tasks that watch these members."""
        end_sessions(self._purgatory, members)

    def _set_rebalance_deadline(self, member: Member, timeout_ms: int) -> None:
        """Start the time that a member has for what it must do next."""
        member.expect_by(trio.current_time() + timeout_ms / 1000)
        self._purgatory.signal(member)

    async def _watch(self, group: G, member: M) -> None:
        """The member's task: it looks at the deadlines when they have come. Heartbeats do not wake it."""
        while not member.removed:
            deadline = min(member.deadline, member.rebalance_deadline)
            remaining_ms = (deadline - trio.current_time()) * 1000
            if remaining_ms > 0:
                await self._purgatory.wait([member], partial(_came_nearer, member, deadline), remaining_ms)
            else:
                await self._fence(group, member)

    async def _fence(self, group: G, member: M) -> None:
        async with self._locks.exclusively(group.group_id):
            if member.removed or min(member.deadline, member.rebalance_deadline) > trio.current_time():
                return
            keys = {"group": group.group_id, "member": member.member_id}
            logger.info(
                "group %s: %s did not act in time and is removed",
                group.group_id,
                who(member.member_id, member.subscription),
                extra=keys,
            )
            try:
                await self._remove(group, member)
            except CoordinatorError as error:
                logger.warning("group %s: %s stays for now: %s", group.group_id, member.member_id, error, extra=keys)
                self.prolong(group, member)
                if not math.isinf(member.rebalance_deadline):
                    # What it had to do it still has to do, however lively it is.
                    member.expect_by(member.deadline)


def end_sessions(purgatory: Purgatory, members: Iterable[Member]) -> None:
    """End the tasks that watch these members."""
    for member in members:
        member.remove()
        purgatory.signal(member)


def _came_nearer(member: Member, deadline: float) -> bool | None:
    return True if member.removed or min(member.deadline, member.rebalance_deadline) < deadline else None

"""The rebalance of a classic group: a delayed join, then a delayed sync, and the answers to all who wait for them.

Kafka's counterparts are prepareRebalance, completeClassicGroupJoin and the pending sync of GroupMetadataManager.
"""

import logging
import math
from collections.abc import Awaitable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.member import ClassicMember, JoinResult, Pending, SyncResult
from ottla.coordinator.group.classic.sessions import Sessions
from ottla.coordinator.group.naming import who
from ottla.coordinator.replay import CoordinatorRecord
from ottla.runtime.purgatory import Purgatory
from ottla.runtime.supervisor import Tasks
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_LONG_SYNC_MS: Final = 3_000
"""A generation that waits longer for its leader's assignment is told in the log."""

T = TypeVar("T")

LEAST_WAIT_MS: Final = 100
"""Between two looks whether absent static members have come back, whatever they give themselves for it."""


class ClassicConfig(NamedTuple):
    """`group.initial.rebalance.delay.ms`, `group.max.size`, and `group.min.session.timeout.ms` with its maximum."""

    initial_rebalance_delay_ms: int
    max_size: int
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000


class GroupStore(Protocol):
    """Where classic groups are stored; `ottla.coordinator.group.shard.shards.GroupShards`."""

    def begin_store(self, group: ClassicGroup, record: CoordinatorRecord) -> Awaitable[None]:
        """Commit a record of a group. Its place among the writes is settled when this returns; what that awaits raises
        CoordinatorError.
        """


class Rebalance:
    """Rebalances the classic groups of one broker. Each method leaves the group in a state that may be observed."""

    def __init__(
        self,
        *,
        config: ClassicConfig,
        clock: Clock,
        purgatory: Purgatory,
        nursery: Tasks,
        store: GroupStore,
    ) -> None:
        self.sessions = Sessions(purgatory)
        self._config = config
        self._clock = clock
        self._purgatory = purgatory
        #: The purgatory in which joins and syncs wait for other members. Timers wait elsewhere: closing it ends none.
        self.answers = Purgatory("rebalance")
        self._nursery = nursery
        self._store = store

    async def watch(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member's task: its session, and what follows when that ends."""
        await self.sessions.until_over(group, member)
        if not member.removed:
            self.remove_and_rebalance(group, member.member_id)

    async def answer_to(self, pending: Pending[T]) -> T:
        """Wait for what a join or a sync is answered with, and return or raise it."""
        await self.answers.wait([pending], pending.is_settled, math.inf)
        if pending.error is not None:
            raise pending.error
        if pending.answer is None:
            raise CoordinatorNotAvailableError("this broker is shutting down")
        return pending.answer

    def answer_join(self, member: ClassicMember, answer: JoinResult | Exception) -> None:
        """Answer the member's JoinGroup, if it waits for one."""
        pending = member.take_join()
        if pending is not None:
            pending.settle(answer)
            self.answers.signal(pending)

    def answer_sync(self, member: ClassicMember, answer: SyncResult | Exception) -> None:
        """Answer the member's SyncGroup, if it waits for one. Its session starts over, whatever the answer: it could
        not send heartbeats while it waited (Kafka's propagateAssignment).
        """
        pending = member.take_sync()
        if pending is not None:
            pending.settle(answer)
            self.answers.signal(pending)
            self.sessions.touch(member)

    def prepare(self, group: ClassicGroup) -> None:
        """Ask everyone to rejoin, unless that is already under way."""
        if group.is_in(ClassicState.PREPARING_REBALANCE, ClassicState.DEAD):
            return
        initial = group.is_in(ClassicState.EMPTY)
        if group.is_in(ClassicState.COMPLETING_REBALANCE):
            for member in group.members.values():
                member.assign(b"")
                self.answer_sync(member, RebalanceInProgressError(f"group {group.group_id} rebalances"))
        group.pending_sync.clear()
        group.transition_to(ClassicState.PREPARING_REBALANCE, now_ms=self._clock.time_ms())
        if initial or not group.all_joined() or not self._complete_join(group):
            self._nursery.start_soon(self._delayed_join, group, initial)

    async def _delayed_join(self, group: ClassicGroup, initial: bool) -> None:
        """Wait for the members to rejoin, then start the next generation.

        The first rebalance of an empty group waits a little for others to come, and again as long as they do (KIP-134).
        """
        least_ms = 0
        if initial:
            await self._initial_delay(group)
        while group.is_in(ClassicState.PREPARING_REBALANCE):
            if not initial:
                await self._purgatory.wait(
                    [group],
                    lambda: True if group.all_joined() or group.is_in(ClassicState.DEAD) else None,
                    max(least_ms, group.rebalance_timeout_ms()),
                )
            initial = False
            if self._complete_join(group):
                return
            # A timeout of 0 is no wait at all, and nobody else would ever run.
            least_ms = LEAST_WAIT_MS

    async def _initial_delay(self, group: ClassicGroup) -> None:
        remaining_ms = group.rebalance_timeout_ms()
        delay_ms = min(self._config.initial_rebalance_delay_ms, remaining_ms)
        while delay_ms > 0:
            group.forget_new_member()
            await self._purgatory.wait([group], lambda: True if group.is_in(ClassicState.DEAD) else None, delay_ms)
            remaining_ms -= delay_ms
            delay_ms = min(self._config.initial_rebalance_delay_ms, remaining_ms) if group.new_member_added else 0

    def _complete_join(self, group: ClassicGroup) -> bool:
        """Start the next generation with those who came; False, to wait on, if only absent static members are left."""
        if not group.is_in(ClassicState.PREPARING_REBALANCE):
            return True
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                keys = {"group": group.group_id, "member": member.member_id}
                logger.info(
                    "group %s: %s did not rejoin in time, removed",
                    group.group_id,
                    who(member.member_id, member),
                    extra=keys,
                )
                self.remove(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            return False
        group.next_generation(now_ms=self._clock.time_ms())
        if group.is_in(ClassicState.EMPTY):
            self.store_empty(group)
            return True
        for member in list(group.members.values()):
            # Static members that are away, too: who does not come to ask for an assignment is removed in the end.
            group.pending_sync.add(member.member_id)
            self.answer_join(member, group.join_result(member))
            member.end_first_join()
            self.sessions.touch(member)
        self._nursery.start_soon(self._delayed_sync, group, group.generation_id)
        return True

    async def _delayed_sync(self, group: ClassicGroup, generation_id: int) -> None:
        """Remove the members that have not asked for their assignment when the rebalance timeout is over."""

        def over() -> bool:
            return group.generation_id != generation_id or not group.pending_sync

        timeout_ms = group.rebalance_timeout_ms()
        soon_ms = min(_LONG_SYNC_MS, timeout_ms)
        if await self._purgatory.wait([group], lambda: True if over() else None, soon_ms):
            return
        if soon_ms < timeout_ms:
            self._say_who_is_awaited(group, generation_id)
            if await self._purgatory.wait([group], lambda: True if over() else None, timeout_ms - soon_ms):
                return
        if not over() and group.is_in(ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            for member_id in sorted(group.pending_sync):
                keys = {"group": group.group_id, "member": member_id}
                named = who(member_id, group.members[member_id]) if member_id in group.members else member_id
                logger.info("group %s: %s never synced, removed", group.group_id, named, extra=keys)
                self.remove(group, member_id)
            self.prepare(group)
            self._purgatory.signal(group)

    def _say_who_is_awaited(self, group: ClassicGroup, generation_id: int) -> None:
        """Without the leader's assignment nobody of the generation goes on: it may have died in between."""
        leader = group.members.get(group.leader_id or "")
        if leader is not None and leader.member_id in group.pending_sync:
            logger.info(
                "group %s: generation %d waits for the assignment of its leader, %s",
                group.group_id,
                generation_id,
                who(leader.member_id, leader),
                extra={"group": group.group_id, "generation": generation_id, "member": leader.member_id},
            )

    def store_empty(self, group: ClassicGroup) -> None:
        """Begin to store a generation without members. Nobody waits for it."""
        self._nursery.start_soon(self._store_empty, group, self._store.begin_store(group, group.metadata_record({})))

    async def _store_empty(self, group: ClassicGroup, stored: Awaitable[None]) -> None:
        try:
            await stored
        except CoordinatorError as error:
            keys = {"group": group.group_id, "error": str(error)}
            logger.warning("group %s: its empty generation is not stored: %s", group.group_id, error, extra=keys)

    def assign(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignment for this generation, and hand it out once it is stored."""
        stored = self._store.begin_store(group, group.metadata_record(assignments))
        self._nursery.start_soon(self._hand_out, group, group.generation_id, assignments, stored)

    async def _hand_out(
        self, group: ClassicGroup, generation_id: int, assignments: Mapping[str, bytes], stored: Awaitable[None]
    ) -> None:
        error: CoordinatorError | None = None
        try:
            await stored
        except CoordinatorError as refused:
            error = refused
        if not group.is_in(ClassicState.COMPLETING_REBALANCE) or group.generation_id != generation_id:
            return
        if error is not None:
            for member in group.members.values():
                member.assign(b"")
                self.answer_sync(member, error)
            self.prepare(group)
            return
        group.transition_to(ClassicState.STABLE, now_ms=self._clock.time_ms())
        leader = group.members.get(group.leader_id or "")
        logger.info(
            "group %s: generation %d has its %d members%s",
            group.group_id,
            generation_id,
            len(group.members),
            "" if leader is None else f", led by {who(leader.member_id, leader)}",
            extra={"group": group.group_id, "generation": generation_id, "members": len(group.members)},
        )
        for member in group.members.values():
            member.assign(assignments.get(member.member_id, b""))
            self.answer_sync(member, SyncResult(group.protocol_type, group.protocol_name, member.assignment))

    def remove_and_rebalance(self, group: ClassicGroup, member_id: str) -> None:
        """A member is gone: the others rejoin."""
        self.remove(group, member_id)
        if group.is_in(ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self.prepare(group)
        self._purgatory.signal(group)

    def remove(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member and answer what it waits for."""
        member = group.remove(member_id)
        if member is not None:
            # Without an id, as in Kafka's `GroupMetadataManager.removeMemberAndUpdateClassicGroup`.
            gone = UnknownMemberIdError(f"{member_id} was removed from group {group.group_id}", member_id="")
            self.answer_join(member, gone)
            self.answer_sync(member, gone)
            self._purgatory.signal(member)

"""Members of consumer groups of both protocols, which commit offsets of the partitions that they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.internal_records.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    build_consumer_protocol,
    parse_consumer_protocol,
)
from ottla.kproto.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.kproto.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.simulation.cluster.clients.group_client import GroupClient
from ottla.simulation.cluster.clients.transactions import COORDINATOR_MOVES

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["ClassicMember", "ConsumerMember", "Offsets"]

_SESSION_MS: Final = 3_000
_HEARTBEAT_S: Final = 0.5
_EXPELLED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""The member has lost its place, or has to ask for it again."""


class Offsets:
    """What the members of one group have committed, and who owned what, according to what they were told.

    Each goes on from what it finds committed, so offsets only rise. An unanswered commit may be carried out later.
    """

    def __init__(self, world: ClientEnvironment, group: str) -> None:
        self._world = world
        self.group = group
        self._acknowledged: dict[Partition, int] = {}
        self._open: dict[Partition, set[int]] = {}
        self._owners: dict[tuple[Partition, int], str] = {}

    def own(self, member: str, generation: int, partitions: Sequence[Partition]) -> None:
        """A member was given partitions in a generation (or member epoch)."""
        for partition in partitions:
            owner = self._owners.setdefault((partition, generation), member)
            self._world.check(
                owner == member,
                f"{partition} of {self.group} belongs to {owner} and {member} in generation {generation}",
            )

    def least(self, partition: Partition) -> int:
        """The least that a fetch which begins now may find."""
        return self._acknowledged.get(partition, -1)

    def fetched(self, member: str, partition: Partition, offset: int, least: int) -> None:
        """What a fetch has found that began when `least` was acknowledged."""
        is_allowed = offset >= least or offset in self._open.get(partition, ())
        self._world.check(
            is_allowed, f"{member} finds {offset} committed for {partition} of {self.group}, and {least} was"
        )

    def begin(self, partition: Partition, offset: int) -> None:
        """A commit is sent."""
        self._open.setdefault(partition, set()).add(offset)

    def end(self, partition: Partition, offset: int, *, is_done: bool) -> None:
        """It was answered."""
        self._open[partition].discard(offset)
        if is_done:
            self._acknowledged[partition] = max(offset, self.least(partition))


class _Member(GroupClient):
    """What members of both protocols do."""

    def __init__(self, world: ClientEnvironment, name: str, offsets: Offsets, topic: str) -> None:
        super().__init__(world, name, offsets.group)
        self.offsets = offsets
        self.topic = topic
        self.owned: list[Partition] = []
        self.positions: dict[Partition, int] = {}
        self.member_id = ""
        self.generation = -1

    def expelled(self, what: str, code: ErrorCode) -> None:
        """It owns nothing until it has joined again."""
        self.note(f"{what}: {code.name}")
        self.world.check(code in _EXPELLED, f"{self.name} {what} and is told {code.name}")
        self.owned = []
        self.positions = {}

    async def take(self, partitions: Sequence[Partition]) -> None:
        """Own these from now on, and go on where the committed offsets say."""
        self.offsets.own(self.name, self.generation, partitions)
        self.owned = list(partitions)
        self.positions = {each: offset for each, offset in self.positions.items() if each in self.owned}
        self.note(f"owns {[index for _, index in partitions]} in {self.generation}")

    async def find_positions(self) -> bool:
        """False if it has to be tried again."""
        missing = [each for each in self.owned if each not in self.positions]
        if not missing:
            return True
        least = {each: self.offsets.least(each) for each in missing}
        named = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[index for _, index in missing])
        group = OffsetFetchRequestGroup(
            group_id=self.offsets.group, member_id=self.member_id, member_epoch=self.generation, topics=[named]
        )
        answer = await self.fetch_offsets(OffsetFetchRequest(groups=[group], require_stable=True))
        if answer is None:
            return False
        for found in answer.topics[0].partitions:
            partition = (self.topic, found.partition_index)
            if found.error_code == ErrorCode.NONE and partition in self.owned:
                self.offsets.fetched(self.name, partition, found.committed_offset, least[partition])
                self.positions[partition] = max(found.committed_offset, 0)
        return True

    async def fetch_offsets(self, request: OffsetFetchRequest) -> Any:
        try:
            answer = (await self.call_coordinator(request, at_most=9)).groups[0]
        except ClientError:
            await self.moved()
            return None
        code = ErrorCode(answer.error_code)
        if code in COORDINATOR_MOVES:
            await self.moved()
            return None
        if code is not ErrorCode.NONE:
            self.expelled("fetches offsets", code)
            return None
        return answer

    async def commit(self) -> None:
        """Commit a bit more of everything that it owns."""
        partitions = [each for each in self.owned if each in self.positions]
        if not partitions:
            return
        committed = {each: self.positions[each] + self.rng.randint(1, 5) for each in partitions}
        parts = [
            OffsetCommitRequestPartition(partition_index=each[1], committed_offset=offset, committed_metadata="")
            for each, offset in committed.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.offsets.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=parts)],
        )
        for partition, offset in committed.items():
            self.offsets.begin(partition, offset)
        try:
            answer = await self.call_coordinator(request, at_most=9)
        except ClientError:
            await self.moved()
            # Whether it was done is not known: a later one of a higher offset overtakes it.
            self.positions.update(committed)
            return
        codes: set[ErrorCode] = set()
        for told in answer.topics[0].partitions:
            partition = (self.topic, told.partition_index)
            code = ErrorCode(told.error_code)
            codes.add(code)
            if code is not ErrorCode.REQUEST_TIMED_OUT and code not in COORDINATOR_MOVES:
                self.offsets.end(partition, committed[partition], is_done=code is ErrorCode.NONE)
            self.positions[partition] = committed[partition]
        self.note(f"commits {list(committed.values())}: {', '.join(sorted(code.name for code in codes))}")
        refused = codes - {ErrorCode.NONE}
        if refused & COORDINATOR_MOVES:
            await self.moved()
        elif refused:
            self.expelled("commits", min(refused))


class ClassicMember(_Member):
    """Joins and syncs; the leader assigns the partitions round robin."""

    def __init__(self, world: ClientEnvironment, name: str, offsets: Offsets, partitions: Sequence[Partition]) -> None:
        super().__init__(world, name, offsets, partitions[0][0])
        self._all = partitions

    async def work(self) -> None:
        while not self.world.is_ending:
            if not await self._join():
                continue
            while not self.world.is_ending:
                await trio.sleep(_HEARTBEAT_S * self.rng.uniform(0.5, 1.5))
                if not await self._beat():
                    break
                if await self.find_positions():
                    await self.commit()
                if self.generation < 0:
                    break
                if self.rng.random() < 0.02:
                    await self._leave()
                    break

    def expelled(self, what: str, code: ErrorCode) -> None:
        super().expelled(what, code)
        self.generation = -1
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _join(self) -> bool:
        subscription = ConsumerProtocolSubscription(topics=[self.topic])
        protocol = JoinGroupRequestProtocol(name="simulated", metadata=build_consumer_protocol(subscription, 0))
        answer = await self.ask(
            JoinGroupRequest(
                group_id=self.offsets.group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            timeout_s=2 * _SESSION_MS / 1000,
        )
        if answer is None:
            return False
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        if code is not ErrorCode.NONE:
            self.expelled("joins", code)
            return False
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        dealt: list[SyncGroupRequestAssignment] = []
        if joined.leader == self.member_id:
            members = sorted(member.member_id for member in joined.members)
            for place, member_id in enumerate(members):
                indexes = [index for _, index in self._all[place :: len(members)]]
                named = AssignedTopicPartition(topic=self.topic, partitions=indexes)
                assignment = ConsumerProtocolAssignment(assigned_partitions=[named])
                dealt.append(
                    SyncGroupRequestAssignment(member_id=member_id, assignment=build_consumer_protocol(assignment, 0))
                )
        answer = await self.ask(
            SyncGroupRequest(
                group_id=self.offsets.group,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="simulated",
                assignments=dealt,
            ),
            timeout_s=2 * _SESSION_MS / 1000,
        )
        if answer is None:
            return False
        if answer.error_code != ErrorCode.NONE:
            self.expelled("syncs", ErrorCode(answer.error_code))
            return False
        given = parse_consumer_protocol(ConsumerProtocolAssignment, answer.assignment)
        self.positions = {}
        await self.take([(named.topic, index) for named in given.assigned_partitions for index in named.partitions])
        return True

    async def _beat(self) -> bool:
        """False if it has to join again."""
        request = HeartbeatRequest(group_id=self.offsets.group, generation_id=self.generation, member_id=self.member_id)
        answer = await self.ask(request)
        if answer is None or answer.error_code == ErrorCode.NONE:
            return True
        self.expelled("beats", ErrorCode(answer.error_code))
        return False

    async def _leave(self) -> None:
        self.note("leaves")
        await self.ask(
            LeaveGroupRequest(group_id=self.offsets.group, members=[MemberIdentity(member_id=self.member_id)])
        )
        self.owned, self.positions, self.member_id, self.generation = [], {}, "", -1


class ConsumerMember(_Member):
    """Sends heartbeats, and takes what the coordinator gives it (KIP-848)."""

    def __init__(self, world: ClientEnvironment, name: str, offsets: Offsets, partitions: Sequence[Partition]) -> None:
        super().__init__(world, name, offsets, partitions[0][0])
        self._join_anew()
        self._says_all = True

    def _join_anew(self) -> None:
        self.generation = 0
        self.owned, self.positions = [], {}
        self._says_all = True

    async def work(self) -> None:
        self.member_id = f"{self.name}-simulated-member"
        while not self.world.is_ending:
            await trio.sleep(_HEARTBEAT_S * self.rng.uniform(0.2, 1.5))
            await self._beat()
            if self.generation > 0 and await self.find_positions():
                await self.commit()

    def expelled(self, what: str, code: ErrorCode) -> None:
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            self.note(f"{what}: {code.name}")  # the next heartbeat tells the present one
            return
        super().expelled(what, code)
        self._join_anew()

    async def _beat(self) -> None:
        topic_id = self.topic_id(self.topic) if await self.leader((self.topic, 0)) >= 0 else None
        assert topic_id is not None
        is_full = self._says_all or self.generation == 0
        owned = [TopicPartitions(topic_id=topic_id, partitions=sorted(index for _, index in self.owned))]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.offsets.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=_SESSION_MS if is_full else -1,
            subscribed_topic_names=[self.topic] if is_full else None,
            topic_partitions=(owned if self.owned else []) if is_full else None,
        )
        answer = await self.ask(request)
        if answer is None:
            self._says_all = True
            return
        if answer.error_code != ErrorCode.NONE:
            self.expelled("beats", ErrorCode(answer.error_code))
            return
        self._says_all = False
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            given = [(self.topic, index) for named in answer.assignment.topic_partitions for index in named.partitions]
            if set(self.owned) != set(given):
                await self.take(sorted(given))
                self._says_all = True  # what was revoked is acknowledged with the next one

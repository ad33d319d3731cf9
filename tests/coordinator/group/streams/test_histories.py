"""Streams groups over random histories: whatever comes and goes, nobody runs what somebody else runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.coordinator.errors import FencedMemberEpochError, NotCoordinatorError, UnknownMemberIdError
from ottla.coordinator.group.locks import GroupLocks
from ottla.coordinator.group.modern.protocol import GroupServices
from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH
from ottla.coordinator.group.shard import records
from ottla.coordinator.group.streams.assignor import NO_TASKS, Task, TaskSet
from ottla.coordinator.group.streams.group import StreamsGroup, StreamsGroupState
from ottla.coordinator.group.streams.heartbeat import (
    StreamsGroupConfig,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
)
from ottla.coordinator.group.streams.member import StreamsMemberState
from ottla.coordinator.group.streams.owners import each_task
from ottla.coordinator.group.streams.protocol import StreamsProtocol
from ottla.coordinator.group.streams.topology import Topology
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records.streams_group import Subtopology, TopicInfo
from ottla.runtime.purgatory import Purgatory
from ottla.storage.clock import ManualClock

TOPOLOGY = Topology(
    0,
    [
        Subtopology(subtopology_id="0", source_topics=["in"], repartition_sink_topics=["r"]),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=[TopicInfo(name="r")],
            state_changelog_topics=[TopicInfo(name="c")],
        ),
    ],
)
STEPS = 250


class Topics:
    """Topics of a cluster in which nothing changes but one number of partitions."""

    def __init__(self) -> None:
        self.counts = {"in": 3, "r": 3, "c": 3}
        self.version = 1

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    async def metadata_hash(self, names: Any) -> int:
        return hash(tuple(sorted(self.counts.items())))


class Member:
    """A client: what it was told last, and what it still owns of what it was told before."""

    def __init__(self, member_id: str, process_id: str, instance_id: str | None = None) -> None:
        self.member_id, self.process_id, self.instance_id = member_id, process_id, instance_id
        self.epoch = 0
        self.owned = NO_TASKS
        self.told = NO_TASKS

    def beat(self, topology: Topology | None = None, owned: TaskSet | None = None) -> StreamsHeartbeat:
        return StreamsHeartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_epoch=0,
            rack_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=60_000,
            topology=topology,
            owned=owned,
            process_id=self.process_id,
            user_endpoint=None,
            client_tags=None,
            instance_id=self.instance_id,
        )

    def take(self, result: StreamsHeartbeatResult) -> None:
        self.epoch = result.member_epoch
        if result.tasks is not None:
            self.told = result.tasks
            # What is gone is let go of only now; what is new runs at once.
            self.owned = result.tasks


class History:
    """One group under random steps, and what has to hold after each of them."""

    def __init__(self, seed: int, nursery: trio.Nursery, standbys: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.topics = Topics()
        self.group = StreamsGroup("g")
        self.members: dict[str, Member] = {}
        self.log: list[CoordinatorRecord] = []
        self.numbers = iter(range(1_000_000))
        self.config = StreamsGroupConfig(assignment_interval_ms=0, initial_rebalance_delay_ms=0, standby_count=standbys)
        services = GroupServices(
            clock=self.clock,
            topics=self.topics,  # type: ignore[arg-type]
            purgatory=Purgatory("group"),
            nursery=nursery,
            locks=GroupLocks(),
            shards=self,  # type: ignore[arg-type]
        )
        self.protocol = StreamsProtocol(services, configs=self)

    def of_streams_group(self, group_id: str) -> StreamsGroupConfig:
        return self.config

    async def write(self, group_id: str, written: Sequence[CoordinatorRecord]) -> None:
        await trio.lowlevel.checkpoint()
        self.log += written
        replay(self.group, written)

    async def step(self) -> None:
        kinds = ("join", "beat", "leave", "lost", "fence", "rejoin", "restart")
        kind = self.chance.choices(kinds, (3, 20, 1, 4, 1, 1, 2))[0]
        if kind == "join" and len(self.members) < 6:
            number = next(self.numbers)
            instance_id = f"i{number}" if self.chance.random() < 0.4 else None
            member = Member(f"m{number}", f"p{self.chance.randrange(4)}", instance_id)
            self.members[member.member_id] = member
            member.take(await self.protocol.heartbeat(self.group, member.beat(TOPOLOGY, NO_TASKS)))
        elif self.members:
            await self.step_of(kind, self.chance.choice(list(self.members.values())))

    async def step_of(self, kind: str, member: Member) -> None:
        if kind == "leave":
            del self.members[member.member_id]
            member.epoch = -1
            await self.protocol.heartbeat(self.group, member.beat())
        elif kind == "fence":
            del self.members[member.member_id]
            await self.protocol._remove(self.group, self.group.members[member.member_id])
            with pytest.raises(UnknownMemberIdError):
                await self.protocol.heartbeat(self.group, member.beat(owned=member.owned))
        elif kind == "restart" and member.instance_id is not None:
            await self.restart(member)
        elif kind in ("rejoin", "restart") and member.instance_id is None:
            # It lost all that it had: it owns nothing, and is told everything anew.
            member.epoch, member.owned = 0, NO_TASKS
            member.take(await self.protocol.heartbeat(self.group, member.beat(TOPOLOGY, NO_TASKS)))
        elif kind == "lost":
            # The answer is lost on the way; the member repeats what it said.
            said = member.beat(owned=member.owned)
            await self.protocol.heartbeat(self.group, said)
            try:
                member.take(await self.protocol.heartbeat(self.group, said))
            except FencedMemberEpochError:
                # A static member that is fenced is not let in again before its session has ended, as in Kafka.
                await self.step_of("rejoin" if member.instance_id is None else "fence", member)
        else:
            owned = None if self.chance.random() < 0.2 else member.owned
            member.take(await self.protocol.heartbeat(self.group, member.beat(owned=owned)))

    async def restart(self, member: Member) -> None:
        """A static member goes away and comes back under another id, now and then as a new process."""
        del self.members[member.member_id]
        epoch, group_epoch = member.epoch, self.group.group_epoch
        before = self.group.members[member.member_id].current
        member.epoch = LEAVE_STATIC_EPOCH
        await self.protocol.heartbeat(self.group, member.beat())
        if self.chance.random() < 0.3 and self.members:
            await self.step_of("beat", self.chance.choice(list(self.members.values())))
            group_epoch = self.group.group_epoch
        number = next(self.numbers)
        process_id = member.process_id if self.chance.random() < 0.7 else f"p{number}"
        back = Member(f"m{number}", process_id, member.instance_id)
        group = self.group
        is_settled = group.group_epoch == group.target_epoch == epoch and self.topics.version == group.checked_version
        self.members[back.member_id] = back
        back.take(await self.protocol.heartbeat(self.group, back.beat(TOPOLOGY, NO_TASKS)))
        if is_settled and process_id == member.process_id:
            # Nobody was disturbed, and it has what it had.
            assert self.group.group_epoch == group_epoch
            if before.state is StreamsMemberState.STABLE:
                assert back.owned == before.assigned.without_epochs()

    def check(self) -> None:
        """No task is active twice, and no process has one in two roles or with two members."""
        active: dict[Task, str] = {}
        held: dict[tuple[Task, str], str] = {}
        for member in self.members.values():
            for role in member.owned:
                for task in each_task(role):
                    holder = held.setdefault((task, member.process_id), member.member_id)
                    assert holder == member.member_id, (task, holder, member.member_id)
            for task in each_task(member.owned.active):
                assert task not in active, (task, active[task], member.member_id)
                active[task] = member.member_id
            assert not set(each_task(member.owned.active)) & set(each_task(member.owned.standby))

    async def settle(self) -> None:
        """When nobody comes or goes any more, all tasks run."""
        for turn in range(20):
            for member in list(self.members.values()):
                current = self.group.members[member.member_id].current
                if turn == 5 and current.state is StreamsMemberState.UNREVOKED_TASKS:
                    # The answer that told it was lost, and is not repeated (nor is it in Kafka): its time ends.
                    await self.step_of("fence", member)
                    continue
                if turn == 5 and current.assigned.without_epochs() != member.owned:
                    # The answer that gave it tasks was lost, and is not repeated either: it starts over.
                    await self.step_of("rejoin" if member.instance_id is None else "restart", member)
                    continue
                member.take(await self.protocol.heartbeat(self.group, member.beat(owned=member.owned)))
                self.check()
        assert self.group.state is (StreamsGroupState.STABLE if self.members else StreamsGroupState.EMPTY)
        if self.members:
            found = sorted(task for member in self.members.values() for task in each_task(member.owned.active))
            assert found == [(name, index) for name in "01" for index in range(self.topics.counts["in"])]

    def check_log(self) -> None:
        """A coordinator that loads the log finds the same group, also when the log was compacted."""
        other = StreamsGroup("g")
        replay(other, self.log)
        assert summary(other) == summary(self.group)
        compacted: dict[bytes, CoordinatorRecord] = {}
        for record in self.log:
            compacted.pop(record.key, None)
            compacted[record.key] = record
        other = StreamsGroup("g")
        replay(other, list(compacted.values()))
        assert summary(other) == summary(self.group)


def replay(group: StreamsGroup, written: Sequence[CoordinatorRecord]) -> None:
    for record in written:
        decoded = records.decode(record)
        assert isinstance(decoded, records.OtherRecord)
        group.replay(decoded.key, decoded.value)


def summary(group: StreamsGroup) -> Mapping[str, Any]:
    held: SimpleNamespace = SimpleNamespace()
    held.members = {
        name: (member.subscription, member.current, group.target_of(name)) for name, member in group.members.items()
    }
    return {
        "epochs": (group.group_epoch, group.target_epoch, group.validated_topology_epoch, group.metadata_hash),
        "configs": dict(group.assignment_configs),
        "topology": group.topology,
        "members": held.members,
    }


@pytest.mark.parametrize("seed", range(6))
async def test_nobody_runs_what_somebody_else_runs(seed: int) -> None:
    async with trio.open_nursery() as nursery:
        history = History(seed, nursery, standbys=seed % 3)
        for number in range(STEPS):
            if number == STEPS // 2:
                history.topics.counts = {"in": 5, "r": 5, "c": 5}
                history.topics.version += 1
            await history.step()
            history.check()
        await history.settle()
        history.check_log()
        history.protocol.close(history.group, NotCoordinatorError("moved away"))
        nursery.cancel_scope.cancel()

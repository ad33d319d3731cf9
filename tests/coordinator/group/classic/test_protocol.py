"""The classic group protocol on Trio's mock clock: no test sleeps for real."""

import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.member import JoinResult, Protocol, SyncResult
from ottla.coordinator.group.classic.protocol import ClassicProtocol, JoinRequest, SyncRequest
from ottla.coordinator.group.classic.rebalance import ClassicConfig, Rebalance
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.shard.records import GroupRecord, decode
from ottla.coordinator.replay import CoordinatorRecord
from ottla.runtime.purgatory import Purgatory
from ottla.storage.clock import ManualClock


class World:
    """One group under test, and what was stored of it."""

    def __init__(self, nursery: trio.Nursery, *, initial_delay_ms: int = 0, max_size: int = 1_000_000) -> None:
        self.nursery = nursery
        self.stored: list[tuple[int, dict[str, bytes]]] = []
        self.store_error: Exception | None = None
        self.store_gate = trio.Event()
        self.store_gate.set()
        self.purgatory = Purgatory("group")
        self.protocol = ClassicProtocol(
            config=ClassicConfig(initial_delay_ms, max_size),
            clock=ManualClock(0),
            purgatory=self.purgatory,
            nursery=nursery,
            store=self,
        )
        self.group = ClassicGroup("g", now_ms=0)

    def begin_store(self, group: ClassicGroup, record: CoordinatorRecord) -> Awaitable[None]:
        found = decode(record)
        assert isinstance(found, GroupRecord)
        assert found.value is not None
        return self.store(group, {each.member_id: each.assignment for each in found.value.members})

    async def store(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        await self.store_gate.wait()
        if self.store_error is not None:
            raise self.store_error
        self.stored.append((group.generation_id, dict(assignments)))

    def request(self, member_id: str = "", **changes: Any) -> JoinRequest:
        return JoinRequest(
            member_id=member_id,
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[Protocol("range", b"r"), Protocol("roundrobin", b"rr")],
            known_member_id_required=False,
            supports_skipping_assignment=True,
        )._replace(**changes)

    async def join(self, member_id: str = "", **changes: Any) -> JoinResult:
        return await self.protocol.join(self.group, self.request(member_id, **changes))

    async def sync(
        self, joined: JoinResult, assignments: Mapping[str, bytes] | None = None, instance: str | None = None
    ) -> SyncResult:
        request = SyncRequest(
            member_id=joined.member_id,
            group_instance_id=instance,
            generation_id=joined.generation_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments or {},
        )
        return await self.protocol.sync(self.group, request)

    def heartbeat(self, joined: JoinResult, instance: str | None = None) -> None:
        self.protocol.heartbeat(
            self.group,
            member_id=joined.member_id,
            group_instance_id=instance,
            generation_id=joined.generation_id,
        )

    async def stable(self, count: int, **changes: Any) -> list[JoinResult]:
        """Bring `count` members into a stable group; the first returned is the leader."""
        joined: list[JoinResult] = []

        async def member() -> None:
            joined.append(await self.join(**changes))

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(member)
        joined = await self.settle(joined)
        return sorted(joined, key=lambda each: each.member_id != each.leader)

    async def settle(self, joined: list[JoinResult]) -> list[JoinResult]:
        """Let everyone who has joined rejoin until all are in one generation, then sync it."""
        members = [each.member_id for each in joined]
        latest: dict[str, JoinResult] = {each.member_id: each for each in joined}

        async def rejoin(member_id: str) -> None:
            latest[member_id] = await self.join(member_id)

        while any(each.generation_id != self.group.generation_id for each in latest.values()):
            async with trio.open_nursery() as nursery:
                for member_id in members:
                    nursery.start_soon(rejoin, member_id)
        plan = {member_id: member_id.encode() for member_id in members}
        async with trio.open_nursery() as nursery:
            for each in latest.values():
                nursery.start_soon(self.sync, each, plan if each.member_id == each.leader else None)
        assert self.group.state is ClassicState.STABLE
        return list(latest.values())


@pytest.fixture
async def world(autojump_clock: trio.testing.MockClock) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        yield World(nursery)
        nursery.cancel_scope.cancel()


async def test_one_member_joins_syncs_and_heartbeats(world: World, autojump_clock: trio.testing.MockClock) -> None:
    joined = await world.join()
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert joined.protocol_name == "range"
    synced = await world.sync(joined, {joined.member_id: b"all"})
    assert synced.assignment == b"all"
    assert world.stored == [(1, {joined.member_id: b"all"})]
    world.heartbeat(joined)


async def test_an_assignment_is_handed_out_only_when_it_is_stored(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    joined = await world.join()
    world.store_gate = trio.Event()
    answers: list[SyncResult] = []

    async def sync() -> None:
        answers.append(await world.sync(joined, {joined.member_id: b"all"}))

    world.nursery.start_soon(sync)
    await trio.sleep(1)
    assert answers == []
    world.store_gate.set()
    await trio.sleep(1)
    assert [answer.assignment for answer in answers] == [b"all"]


async def test_an_assignment_that_cannot_be_stored_rebalances_the_group(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    joined = await world.join()
    world.store_error = CoordinatorNotAvailableError("the disk is full")
    with pytest.raises(CoordinatorNotAvailableError):
        await world.sync(joined, {joined.member_id: b"all"})
    world.store_error = None
    assert world.group.state is ClassicState.PREPARING_REBALANCE
    again = await world.join(joined.member_id)
    assert (await world.sync(again, {joined.member_id: b"all"})).assignment == b"all"


async def test_the_first_rebalance_waits_for_others(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, initial_delay_ms=3_000)
        results: list[JoinResult] = []

        async def member(after_s: float) -> None:
            await trio.sleep(after_s)
            results.append(await world.join())

        async with trio.open_nursery() as members:
            for after_s in (0, 1, 2, 5):
                members.start_soon(member, after_s)
        assert {result.generation_id for result in results} == {1}
        assert trio.current_time() == pytest.approx(9, abs=0.1)
        nursery.cancel_scope.cancel()


async def test_the_initial_delay_is_not_prolonged_beyond_the_rebalance_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, initial_delay_ms=3_000)

        async def member(after_s: float) -> None:
            await trio.sleep(after_s)
            await world.join(rebalance_timeout_ms=7_000, session_timeout_ms=30_000)

        for after_s in range(20):
            nursery.start_soon(member, after_s)
        await trio.sleep(6.9)
        assert world.group.generation_id == 0
        await trio.sleep(0.2)
        assert world.group.generation_id == 1
        nursery.cancel_scope.cancel()


async def test_a_member_id_is_required_and_then_accepted(world: World, autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(MemberIdRequiredError) as caught:
        await world.join(known_member_id_required=True)
    assert caught.value.member_id.startswith("client-")
    joined = await world.join(caught.value.member_id, known_member_id_required=True)
    assert joined.member_id == caught.value.member_id


async def test_a_member_id_that_is_not_used_is_forgotten(world: World, autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(MemberIdRequiredError) as caught:
        await world.join(known_member_id_required=True)
    await trio.sleep(11)
    with pytest.raises(UnknownMemberIdError):
        await world.join(caught.value.member_id)
    assert not world.group.pending_members


async def test_a_second_member_makes_the_first_rejoin(world: World, autojump_clock: trio.testing.MockClock) -> None:
    (first,) = await world.stable(1)
    results: list[JoinResult] = []

    async def second() -> None:
        results.append(await world.join())

    world.nursery.start_soon(second)
    await trio.sleep(0.1)
    with pytest.raises(RebalanceInProgressError):
        world.heartbeat(first)
    again = await world.join(first.member_id)
    await trio.sleep(0.1)
    assert again.generation_id == results[0].generation_id == 2
    assert again.leader == first.member_id
    assert len(again.members) == 2
    assert results[0].members == ()


async def test_a_member_that_does_not_rejoin_is_removed_after_the_rebalance_timeout(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    first, second = await world.stable(2)
    start = trio.current_time()
    results: list[JoinResult] = []

    async def rejoin() -> None:
        results.append(await world.join(first.member_id))

    world.nursery.start_soon(rejoin)
    for _ in range(100):
        await trio.sleep(7)
        if results:
            break
        with pytest.raises(RebalanceInProgressError):
            world.heartbeat(second)
    assert [member.member_id for member in results[0].members] == [first.member_id]
    assert trio.current_time() - start >= 60
    with pytest.raises(UnknownMemberIdError):
        world.heartbeat(second)


async def test_a_member_that_vanishes_is_removed_after_its_session(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    first, _second = await world.stable(2)
    for _ in range(3):
        await trio.sleep(4)
        if world.group.state is ClassicState.STABLE:
            world.heartbeat(first)
    assert world.group.state is ClassicState.PREPARING_REBALANCE
    assert list(world.group.members) == [first.member_id]


@pytest.mark.parametrize("cause", ["the leader's session ends", "the assignment is not stored"])
async def test_whoever_waited_for_an_assignment_has_a_whole_session_to_rejoin(
    world: World, autojump_clock: trio.testing.MockClock, cause: str
) -> None:
    leader, follower = await world.stable(2)
    async with trio.open_nursery() as nursery:
        answers: list[JoinResult] = []

        async def rejoin(member_id: str, **changes: Any) -> None:
            answers.append(await world.join(member_id, **changes))

        nursery.start_soon(partial(rejoin, leader.member_id, session_timeout_ms=19_500))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(rejoin, follower.member_id)
    leader, follower = sorted(answers, key=lambda each: each.member_id != each.leader)
    began = trio.current_time()

    async def lead() -> None:
        await trio.sleep_until(began + 19.4)
        world.store_error = CoordinatorNotAvailableError("no majority")
        with pytest.raises(CoordinatorNotAvailableError):
            await world.sync(leader)

    async with trio.open_nursery() as nursery:
        if cause == "the assignment is not stored":
            nursery.start_soon(lead)
        with pytest.raises((RebalanceInProgressError, CoordinatorNotAvailableError)):
            await world.sync(follower)
    await trio.sleep(9.9)  # its session of 10 s was prolonged last while it waited
    assert follower.member_id in world.group.members
    assert (await world.join(follower.member_id)).leader == follower.member_id


async def test_a_member_that_joins_and_never_syncs_is_removed(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    joined = await world.join()
    for _ in range(14):
        await trio.sleep(5)
        if joined.member_id in world.group.members:
            world.heartbeat(joined)
    assert joined.member_id not in world.group.members
    assert world.group.state is ClassicState.EMPTY
    assert world.stored[-1][1] == {}


async def test_the_log_says_who_keeps_a_generation_waiting(
    world: World, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that has joined and died before it synced holds all others up until its session ends."""
    caplog.set_level(logging.INFO)
    leader, other = await world.stable(2)
    joins: list[JoinResult] = []

    async def rejoin(member: JoinResult) -> None:
        joins.append(await world.join(member.member_id))

    world.protocol._rebalance.prepare(world.group)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rejoin, leader)
        nursery.start_soon(rejoin, other)
    await trio.sleep(4)
    name = f"{leader.member_id} (client.id 'client' at /127.0.0.1)"
    lines = [record.getMessage() for record in caplog.records]
    assert f"group g: generation 1 has its 2 members, led by {name}" in lines[0]
    assert lines[-1] == f"group g: generation {joins[0].generation_id} waits for the assignment of its leader, {name}"
    await trio.sleep(20)
    assert f"group g: the session of {name} ended, removed" in caplog.text


async def test_leaving_rebalances_those_who_stay(world: World, autojump_clock: trio.testing.MockClock) -> None:
    first, second = await world.stable(2)
    assert await world.protocol.leave(world.group, second.member_id, None) == second.member_id
    assert world.group.state is ClassicState.PREPARING_REBALANCE
    again = await world.join(first.member_id)
    assert [member.member_id for member in again.members] == [first.member_id]


async def test_when_everyone_leaves_the_group_is_empty_and_that_is_stored(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    (first,) = await world.stable(1)
    await world.protocol.leave(world.group, first.member_id, None)
    await trio.sleep(1)
    assert world.group.state is ClassicState.EMPTY
    assert world.stored[-1] == (2, {})
    assert world.purgatory.watching == 0


async def test_stale_and_unknown_members_are_refused(world: World, autojump_clock: trio.testing.MockClock) -> None:
    (first,) = await world.stable(1)
    with pytest.raises(IllegalGenerationError):
        world.heartbeat(first._replace(generation_id=first.generation_id + 1))
    with pytest.raises(UnknownMemberIdError):
        world.heartbeat(first._replace(member_id="nobody"))
    with pytest.raises(IllegalGenerationError):
        await world.sync(first._replace(generation_id=0))
    with pytest.raises(UnknownMemberIdError):
        await world.join("nobody")


async def test_a_member_that_names_a_protocol_twice_has_it_once(world: World, autojump_clock: Any) -> None:
    twice = [Protocol("range", b"r"), Protocol("range", b"r")]
    leader, *_ = await world.stable(2, protocols=twice)
    assert leader.protocol_name == "range"


async def test_protocols_must_have_something_in_common(world: World, autojump_clock: trio.testing.MockClock) -> None:
    await world.stable(1)
    with pytest.raises(InconsistentGroupProtocolError):
        await world.join(protocols=[Protocol("sticky", b"")])
    with pytest.raises(InconsistentGroupProtocolError):
        await world.join(protocol_type="connect")
    with pytest.raises(InconsistentGroupProtocolError):
        await world.join(protocols=[])


async def test_the_protocol_that_all_have_and_most_prefer_is_chosen(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    results: list[JoinResult] = []

    async def member(*names: str) -> None:
        results.append(await world.join(protocols=[Protocol(name, b"") for name in names]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member, "a", "b", "c")
        nursery.start_soon(member, "b", "c")
        nursery.start_soon(member, "c", "b")
        await trio.sleep(0.1)
        for each in list(world.group.members.values()):
            if each.awaiting_join is None:
                nursery.start_soon(
                    world.protocol.join, world.group, world.request(each.member_id, protocols=each.protocols)
                )
    assert world.group.protocol_name == "b"


async def test_a_full_group_takes_no_more(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, max_size=2)
        await world.stable(2)
        with pytest.raises(GroupMaxSizeReachedError):
            await world.join()
        nursery.cancel_scope.cancel()


async def test_a_member_that_asks_again_unchanged_gets_the_current_generation(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await world.stable(2)
    again = await world.join(follower.member_id)
    assert again.generation_id == leader.generation_id
    assert world.group.state is ClassicState.STABLE


async def test_the_leader_that_rejoins_starts_a_rebalance(world: World, autojump_clock: trio.testing.MockClock) -> None:
    leader, follower = await world.stable(2)
    results: list[JoinResult] = []

    async def rejoin(member_id: str) -> None:
        results.append(await world.join(member_id))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rejoin, leader.member_id)
        await trio.sleep(0.1)
        assert world.group.state is ClassicState.PREPARING_REBALANCE
        nursery.start_soon(rejoin, follower.member_id)
    assert {result.generation_id for result in results} == {leader.generation_id + 1}


async def test_a_request_that_is_cancelled_leaves_its_member_waiting(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    (first,) = await world.stable(1)
    with trio.move_on_after(1):
        await world.join()
    assert len(world.group.members) == 2
    again = await world.join(first.member_id)
    assert len(again.members) == 2
    assert again.generation_id == first.generation_id + 1


class TestStaticMembers:
    """KIP-345 and KIP-814."""

    async def test_a_restart_keeps_the_assignment_without_a_rebalance(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        joined = await world.join(group_instance_id="i")
        await world.sync(joined, {joined.member_id: b"mine"}, instance="i")
        again = await world.join(group_instance_id="i")
        assert again.member_id != joined.member_id
        assert again.generation_id == joined.generation_id
        assert again.skip_assignment
        assert again.leader == again.member_id
        assert [member.member_id for member in again.members] == [again.member_id]
        assert world.stored[-1] == (1, {again.member_id: b"mine"})
        assert (await world.sync(again, instance="i")).assignment == b"mine"

    async def test_before_v9_the_restarted_leader_is_told_of_another_leader(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        joined = await world.join(group_instance_id="i")
        await world.sync(joined, {joined.member_id: b"mine"}, instance="i")
        again = await world.join(group_instance_id="i", supports_skipping_assignment=False)
        assert again.leader == joined.member_id
        assert again.members == ()
        assert not again.skip_assignment

    async def test_the_predecessor_is_fenced(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        joined = await world.join(group_instance_id="i")
        await world.sync(joined, {joined.member_id: b"mine"}, instance="i")
        await world.join(group_instance_id="i")
        with pytest.raises(FencedInstanceIdError):
            world.heartbeat(joined, instance="i")
        with pytest.raises(FencedInstanceIdError):
            await world.join(joined.member_id, group_instance_id="i")

    async def test_a_restart_with_another_protocol_rebalances(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        joined = await world.join(group_instance_id="i")
        await world.sync(joined, {joined.member_id: b"mine"}, instance="i")
        again = await world.join(group_instance_id="i", protocols=[Protocol("roundrobin", b"")])
        assert again.generation_id == joined.generation_id + 1

    async def test_a_restart_that_cannot_be_stored_changes_nothing(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        joined = await world.join(group_instance_id="i")
        await world.sync(joined, {joined.member_id: b"mine"}, instance="i")
        world.store_error = CoordinatorNotAvailableError("the disk is full")
        with pytest.raises(CoordinatorNotAvailableError):
            await world.join(group_instance_id="i", session_timeout_ms=20_000, client_id="other")
        world.heartbeat(joined, instance="i")
        member = world.group.members[joined.member_id]
        assert (member.session_timeout_ms, member.client_id) == (10_000, "client")

    async def test_static_members_without_time_to_rejoin_hold_up_nobody(
        self, world: World, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Their rebalance timeout is over at once, and yet they stay until their sessions end."""
        tries = 0
        complete = Rebalance._complete_join

        def count(rebalance: Rebalance, group: ClassicGroup) -> bool:
            nonlocal tries
            tries += 1
            assert tries < 1_000, "it tries for ever, and nothing else runs"
            return complete(rebalance, group)

        monkeypatch.setattr(Rebalance, "_complete_join", count)
        patient = await world.join(group_instance_id="b")
        await world.sync(patient, {}, instance="b")
        hasty = []

        async def join() -> None:
            hasty.append(await world.join(group_instance_id="a", rebalance_timeout_ms=0))

        world.nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        patient = await world.join(patient.member_id, group_instance_id="b")
        await trio.testing.wait_all_tasks_blocked()
        await world.sync(patient, {}, instance="b")
        await world.sync(hasty[0], {}, instance="a")
        await world.protocol.leave(world.group, "", "b")
        await trio.sleep(20)
        assert not world.group.members
        assert world.group.state is ClassicState.EMPTY

    async def test_an_absent_static_member_is_not_removed_by_a_rebalance(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        joined = await world.join(group_instance_id="i", session_timeout_ms=300_000)
        await world.sync(joined, {joined.member_id: b"mine"}, instance="i")
        second = await world.join()
        assert len(world.group.members) == 2
        assert second.generation_id == 2
        assert second.leader == second.member_id

    async def test_it_leaves_by_its_instance_id(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        joined = await world.join(group_instance_id="i")
        assert await world.protocol.leave(world.group, "", "i") == joined.member_id
        with pytest.raises(UnknownMemberIdError):
            await world.protocol.leave(world.group, "", "i")


class TestCommits:
    def commit(self, world: World, joined: JoinResult | None, **changes: Any) -> None:
        arguments: dict[str, Any] = {
            "member_id": "" if joined is None else joined.member_id,
            "group_instance_id": None,
            "generation_id": -1 if joined is None else joined.generation_id,
        }
        world.protocol.validate_offset_commit(world.group, Committer(**(arguments | changes)), {})

    async def test_nobody_commits_into_an_empty_group_only(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        self.commit(world, None)
        (joined,) = await world.stable(1)
        with pytest.raises(UnknownMemberIdError):
            self.commit(world, None)
        self.commit(world, joined)
        self.commit(world, None, is_transactional=True)

    async def test_zombies_are_refused(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        (joined,) = await world.stable(1)
        with pytest.raises(IllegalGenerationError):
            self.commit(world, joined, generation_id=0)
        with pytest.raises(UnknownMemberIdError):
            self.commit(world, joined, member_id="gone")

    async def test_while_an_assignment_is_computed_commits_wait(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        joined = await world.join()
        with pytest.raises(RebalanceInProgressError):
            self.commit(world, joined)


async def test_a_thousand_members_join_at_once(world: World, autojump_clock: trio.testing.MockClock) -> None:
    members = await world.stable(1_000)
    assert len(world.group.members) == 1_000
    assert len(world.stored[-1][1]) == 1_000
    assert len({member.generation_id for member in members}) == 1


async def test_closing_a_group_answers_everyone_and_ends_all_waits(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.stable(1)
    answers: list[Exception] = []

    async def waiting() -> None:
        try:
            await world.join()
        except CoordinatorNotAvailableError as error:
            answers.append(error)

    world.nursery.start_soon(waiting)
    await trio.sleep(1)
    world.protocol.close(world.group, CoordinatorNotAvailableError("moved"))
    await trio.sleep(1)
    assert len(answers) == 1
    assert world.purgatory.watching == 0
    with pytest.raises(CoordinatorNotAvailableError):
        await world.join()

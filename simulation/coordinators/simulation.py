"""One seed from its beginning to its end: brokers that live and die, and what must be left when all is over."""

from __future__ import annotations

import hashlib
import math
import re
import traceback
from collections.abc import Collection

import trio
import trio.testing

from ottla.simulation.coordinators.clients import Administrator, Client, Operator, SimpleClient, TransactionalClient
from ottla.simulation.coordinators.determinism import deterministic
from ottla.simulation.coordinators.invariants import StepChecks, groups_with_offsets
from ottla.simulation.coordinators.members import ClassicMember, ConsumerMember, StreamsMember
from ottla.simulation.coordinators.world import CHECK_INTERVAL_MS, OFFSETS_PARTITIONS, RETENTION_MS, World
from ottla.simulation.harness.outcome import Outcome

_ADDRESS = re.compile(" object at 0x[0-9a-f]+")
SILENCE_S = 20
"""Longer than a new classic member may wait, which is the longest of all timeouts."""
PATIENCE_S = 3_600
"""Whatever has not ended by now never will."""


def simulate(seed: int, *, only: Collection[int] | None = None) -> Outcome:
    """Run one seed. `only` has the numbers of the clients' steps that are done; without it all are."""
    world = _run(seed, only)
    lines = [_ADDRESS.sub("", line) for line in world.trace]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return Outcome(seed, "; ".join(world.violations.values()), lines, digest, world.parts, world.done)


def _run(seed: int, only: Collection[int] | None) -> World:
    world = World(seed, only)
    with deterministic(seed):
        clock = trio.testing.MockClock(autojump_threshold=0)
        checks = StepChecks(world)
        try:
            trio.run(_live, world, checks.scope, clock=clock, instruments=[checks])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is found
            world.trace += traceback.format_exception(error)
            world.violate(f"it fails: {error!r}")
    return world


async def _live(world: World, whole: trio.CancelScope) -> None:
    clients = _clients(world)
    with whole, trio.move_on_after(PATIENCE_S) as patience:
        for _ in range(world.rng.randint(0, 3)):
            await _life(world, clients, is_last=False)
        await _life(world, clients, is_last=True)
    if patience.cancelled_caught:
        world.violate("it hangs: the last life does not end")


def _clients(world: World) -> list[Client]:
    """The clients of one seed: few, and each kind may be missing, so that the others meet more often."""
    kinds = (SimpleClient, ConsumerMember, ClassicMember, TransactionalClient, Administrator, Operator)
    most = (2, 3, 3, 2, 1, 1)
    clients: list[Client] = [
        kind(world, f"{kind.__name__}{number}")
        for kind, count in zip(kinds, most, strict=True)
        for number in range(world.rng.randint(0, count))
    ]
    # In every fourth seed, so that the others meet as often as before.
    streams = world.rng.randint(1, 3) if world.seed % 4 == 3 else 0
    return [*clients, *(StreamsMember(world, f"StreamsMember{number}") for number in range(streams))]


async def _life(world: World, clients: list[Client], *, is_last: bool) -> None:
    """A broker from its start to its death, or to the end of all."""
    async with trio.open_nursery() as broker:
        world.start(broker)
        async with trio.open_nursery() as crowd:
            pause_s = world.rng.choice((0.005, 0.05, 0.4))
            for client in clients:
                crowd.start_soon(client.run, pause_s)
            await trio.sleep(world.rng.uniform(0, 1) * pause_s * 60)
            if not is_last:
                world.die()
                broker.cancel_scope.cancel()
            crowd.cancel_scope.cancel()
        await _end(world)
        world.die()
        broker.cancel_scope.cancel()


async def _end(world: World) -> None:
    """All clients are gone and nothing fails any more. Check what must be left, and what must not, as time goes by."""
    world.note("silence")
    world.log.refusing.clear()
    for partition in range(OFFSETS_PARTITIONS):
        world.lead(partition, here=True)
    await _loaded(world)
    for producer_id in list(world.open_transactions):
        assert await world.end_transaction(producer_id, commit=world.rng.random() < 0.5)
    world.audit()
    await trio.sleep(SILENCE_S)
    world.audit()
    _nobody_is_left(world)
    _no_offset_of_the_deleted(world)
    world.clock.set_forward(2 * RETENTION_MS)
    await trio.sleep(20 * CHECK_INTERVAL_MS / 1000)
    for shard in world.coordinator.runtime.shards():
        left = {*groups_with_offsets(shard), *shard.groups}
        if left:
            world.violate(f"it never expires: {sorted(left)}")


async def _loaded(world: World) -> None:
    while world.coordinator.runtime.loading():  # noqa: ASYNC110 - there is no event for it
        await trio.sleep(0.01)


def _nobody_is_left(world: World) -> None:
    """Every member has a session: when all are silent for long enough, all are gone."""
    for shard in world.coordinator.runtime.shards():
        for group in shard.groups.values():
            if group.members:
                kind = type(group).__name__
                deadlines = {each.member_id: math.isinf(each.deadline) for each in group.members.values()}
                world.violate(f"a member that nobody watches: {kind} {group.group_id} {deadlines}")


def _no_offset_of_the_deleted(world: World) -> None:
    for shard in world.coordinator.runtime.shards():
        for group_id in sorted(groups_with_offsets(shard)):
            for partition in shard.offsets.partitions(group_id):
                found = shard.offsets.get(group_id, partition)
                if found is not None and not world.is_living(found.topic_id):
                    world.violate(f"an offset of a deleted topic stays: {group_id} {partition} {found.offset}")

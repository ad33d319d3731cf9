"""One seed from its beginning to its end."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from typing import Final

import trio

from ottla.metadata.image import ConfigResource, ResourceType
from ottla.simulation.cluster.checks.audit import Logs, audit
from ottla.simulation.cluster.checks.bounds import bounds_watched
from ottla.simulation.cluster.checks.ending import (
    check_nothing_held,
    check_quiet,
    check_replicas,
    stop_all,
    until_in_sync,
)
from ottla.simulation.cluster.checks.in_sync import in_sync_sets_watched
from ottla.simulation.cluster.clients.admin import Administrator, configure_group, make_topic
from ottla.simulation.cluster.clients.client import Client
from ottla.simulation.cluster.clients.consumer import Consumer
from ottla.simulation.cluster.clients.dead_letters import DeadLetters, LetterReader, queue_of
from ottla.simulation.cluster.clients.groups import ClassicMember, ConsumerMember, Offsets
from ottla.simulation.cluster.clients.movers import MOVED, Mover, with_moved
from ottla.simulation.cluster.clients.producer import Producer
from ottla.simulation.cluster.clients.share_members import Drainer, ShareMember
from ottla.simulation.cluster.clients.transactions import TransactionalProducer
from ottla.simulation.cluster.determinism import deterministic
from ottla.simulation.cluster.faults.faults import FAULTS, Faults
from ottla.simulation.cluster.faults.resizing import Resizer
from ottla.simulation.cluster.faults.rolling import upgrade
from ottla.simulation.cluster.histories.attempts import Partition
from ottla.simulation.cluster.histories.deliveries import Deliveries
from ottla.simulation.cluster.machines.epoll import simulated_epoll
from ottla.simulation.cluster.world import LogWatch, World
from ottla.simulation.harness import scheduling
from ottla.simulation.harness.outcome import Outcome

__all__ = ["ACKNOWLEDGED", "READ_REMOTELY", "SIMULATED_SECONDS", "make_topics", "simulate"]

SIMULATED_SECONDS: Final = "simulated seconds"
ACKNOWLEDGED: Final = "records acknowledged"
READ_REMOTELY: Final = "reads from the object store"
EVENTS: Final = "events"
SHARED: Final = "shared"
_LIMIT_S: Final = 1_000.0
_TIERED_TOPIC: Final = {
    "remote.storage.enable": "true",
    "segment.ms": "300",
    "local.retention.ms": "1",
    "local.retention.bytes": "1",
}
_PATIENCE_S: Final = 90.0
"""How long what clients have begun may take when nothing is wrong any more."""


def simulate(
    seed: int,
    *,
    nodes: int = 3,
    faults: Collection[str] = FAULTS,
    seconds: float = 10.0,
    only: Collection[int] | None = None,
) -> Outcome:
    """Run one seed: so many nodes, under faults of these kinds, for about so many simulated seconds.

    `only` has the numbers of the faults that come; without it all do.
    """
    world = World(seed, nodes=nodes)
    watch = LogWatch(world)
    logger = logging.getLogger("ottla")
    logger.addHandler(watch)
    ended_s = 0.0

    async def live() -> None:
        nonlocal ended_s
        world.pauses.install()
        with world.scope:
            await _live(world, Faults(world, faults, only), seconds)
        ended_s = trio.current_time()

    try:
        with deterministic(seed, world.workers), simulated_epoll(world.network):
            scheduling.run(live, seed, limit_s=_LIMIT_S, hung=world.hung)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is found
        if not world.finding:
            world.finding, world.cause = f"it fails: {error!r}", error
    finally:
        logger.removeHandler(watch)
    lines = [*world.trace, f"{world.network.sent_bytes} bytes sent in {ended_s:.6f} s"]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    counts = {SIMULATED_SECONDS: ended_s, ACKNOWLEDGED: world.history.acknowledged}
    if world.is_tiered:
        counts[READ_REMOTELY] = world.remote_reads
    return Outcome(seed, world.finding, lines, digest, world.faults, counts, world.cause)


async def _live(world: World, faults: Faults, seconds: float) -> None:
    async with trio.open_nursery() as world.nursery:
        for machine in world.machines.values():
            machine.start()
        try:
            async with bounds_watched(world), in_sync_sets_watched(world):
                partitions = await make_topics(world)
                await _work(world, partitions, faults, seconds)
                await until_in_sync(world)
                logs = await audit(world, with_moved(partitions), patience_s=_PATIENCE_S)
                for deliveries in world.deliveries:
                    visible, everything = (
                        {each: logs[kind][each] for each in partitions} for kind in (deliveries.is_committed, False)
                    )
                    await drain(world, deliveries, visible, everything)
                await check_replicas(world)
                await check_nothing_held(world)
                await check_quiet(world)
                world.count_remote_reads()
        finally:
            world.pauses.release_all()
        await stop_all(world)


async def _work(world: World, partitions: list[Partition], faults: Faults, seconds: float) -> None:
    """Let clients work while faults come, then end what they have begun when nothing is wrong any more."""
    async with trio.open_nursery() as crowd:
        for client in _clients(world, partitions, faults.unlucky):
            crowd.start_soon(client.run)
        with trio.move_on_after(seconds):
            await faults.run()
            await trio.sleep_forever()
        faults.heal()
        if world.is_upgraded:
            await upgrade(world)
        world.is_ending = True
        crowd.cancel_scope.deadline = trio.current_time() + _PATIENCE_S
    if crowd.cancel_scope.cancelled_caught:
        world.fail(f"clients have not ended within {_PATIENCE_S:g} s, and nothing is wrong")


async def drain(world: World, deliveries: Deliveries, visible: Logs, everything: Logs) -> None:
    """Let a share group have what it has not had yet, of the records that are visible to it: nothing that it should be
    given is lost, and dead letters are about what nobody gets any more.
    """
    deliveries.check_holders()
    letters = world.dead_letters.get(deliveries.group)
    async with trio.open_nursery() as nursery:
        reader = None if letters is None else LetterReader(world, letters)
        if reader is not None:
            nursery.start_soon(reader.run)
        with trio.move_on_after(_PATIENCE_S):
            await Drainer(world, deliveries, visible, world.share_leader, letters).run()
        if reader is not None:
            reader.finish()
    missing = deliveries.missing(visible)
    world.check(not missing, f"{deliveries.group} is not given {'; '.join(missing[:3])}, and nothing is wrong")
    if letters is not None:
        letters.check(visible, everything)


class _Founder(Client):
    """Makes the topics that all clients use, and lets the share group begin with the first record."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "founder")
        self.partitions: list[Partition] = [(EVENTS, index) for index in range(self.rng.choice((1, 2, 3)))]
        self._isolation = self.rng.choice(("read_committed", "read_uncommitted"))
        self._queue = queue_of(world.seed, SHARED)
        self._is_tiered = world.is_tiered

    async def work(self) -> None:
        for topic in (EVENTS, MOVED):
            await make_topic(self, topic, len(self.partitions), _TIERED_TOPIC if self._is_tiered else {})
        settings = {"share.auto.offset.reset": "earliest", "share.isolation.level": self._isolation}
        if self._queue is not None:
            await self._queue.make(self)
            settings |= self._queue.settings
        await configure_group(self, SHARED, settings)


async def make_topics(world: World) -> list[Partition]:
    """Make the topics that all clients use, when every node serves; returns the partitions to produce to."""
    while not all(machine.broker is not None for machine in world.machines.values()):  # noqa: ASYNC110
        await trio.sleep(0.05)
    founder = _Founder(world)
    await founder.run()
    resource = ConfigResource(ResourceType.GROUP, SHARED)
    images = [machine.image for machine in world.machines.values()]
    while not all(image is not None and image.resource_configs(resource) for image in images):
        await trio.sleep(0.01)
        images = [machine.image for machine in world.machines.values()]
    return founder.partitions


def _clients(world: World, partitions: list[Partition], unlucky: int) -> list[Client]:
    """Those of one seed: a reader, and one or two kinds of others."""
    rng = world.rng
    clients: list[Client] = [Consumer(world, "reader", with_moved(partitions), is_committed=rng.random() < 0.5)]
    for kind in dict.fromkeys(rng.choices(_KINDS, k=rng.randint(1, 2))):
        clients += kind(world, partitions)
    return clients + _people(world, partitions, unlucky)


def _people(world: World, partitions: list[Partition], unlucky: int) -> list[Client]:
    """The clients that change the cluster meanwhile, in half of all seeds; in some others it is upgraded in the end."""
    chosen = world.rng.random() if len(world.machines) > 1 else 1.0
    if chosen < 0.3:
        return [Administrator(world, "admin", partitions, unlucky)]
    world.is_upgraded = 0.5 <= chosen < 0.65
    return [Resizer(world, "resizer", unlucky)] if chosen < 0.5 else []


def _producers(world: World, partitions: list[Partition], name: str = "p") -> list[Client]:
    return [Producer(world, f"{name}{number}", partitions) for number in range(world.rng.randint(1, 2))]


def _transactions(world: World, partitions: list[Partition], name: str = "t") -> list[Client]:
    return [TransactionalProducer(world, f"{name}{number}", partitions) for number in range(world.rng.randint(1, 2))]


def _classic_group(world: World, partitions: list[Partition]) -> list[Client]:
    offsets = Offsets(world, "classic")
    return [ClassicMember(world, f"classic{number}", offsets, partitions) for number in range(world.rng.randint(1, 3))]


def _consumer_group(world: World, partitions: list[Partition]) -> list[Client]:
    offsets = Offsets(world, "consumer")
    return [ConsumerMember(world, f"member{number}", offsets, partitions) for number in range(world.rng.randint(1, 3))]


def _share_group(world: World, partitions: list[Partition]) -> list[Client]:
    """The members of a share group, and a producer of the records that they are given."""
    rng = world.rng
    image = next(machine.image for machine in world.machines.values() if machine.image is not None)
    configs = image.resource_configs(ConfigResource(ResourceType.GROUP, SHARED))
    deliveries = Deliveries(
        world,
        SHARED,
        limit=int(world.settings["group.share.delivery.count.limit"]),
        lock_s=int(world.settings["group.share.record.lock.duration.ms"]) / 1000,
        is_committed=configs["share.isolation.level"] == "read_committed",
    )
    world.deliveries.append(deliveries)
    queue = queue_of(world.seed, SHARED)
    if queue is not None:
        world.dead_letters[SHARED] = DeadLetters(world, deliveries, queue)
    source = _transactions if rng.random() < 0.3 else _producers
    members = [
        ShareMember(world, f"sharer{number}", deliveries, partitions, world.share_leader, rejects=3 if queue else 1)
        for number in range(rng.randint(1, 3))
    ]
    return [*source(world, partitions, "giver"), *members]


def _movers(world: World, partitions: list[Partition]) -> list[Client]:
    """The movers, and a producer of the records that they move."""
    source = _transactions if world.rng.random() < 0.3 else _producers
    return [*source(world, partitions, "source"), *(Mover(world, f"mover{number}", partitions) for number in range(2))]


_KINDS: Final = (
    _producers,
    _producers,
    _transactions,
    _movers,
    _movers,
    _classic_group,
    _consumer_group,
    _share_group,
    _share_group,
)
"""Which kinds of clients there may be; most promises are about records."""

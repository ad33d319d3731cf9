"""One seed from its beginning to its end."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from typing import Final, NamedTuple

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from simulation.cluster.client import Client
from simulation.cluster.consumer import Auditor, Consumer
from simulation.cluster.determinism import deterministic
from simulation.cluster.ending import check_nothing_held, check_replicas, stop_all, until_in_sync
from simulation.cluster.errors import SimulationError
from simulation.cluster.faults import FAULTS, Faults
from simulation.cluster.history import Partition
from simulation.cluster.producer import Producer
from simulation.cluster.world import LogWatch, World
from simulation.storage import determinism

__all__ = ["Outcome", "simulate"]

_LIMIT_S: Final = 1_000.0
_PATIENCE_S: Final = 90.0
"""How long what clients have begun may take when nothing is wrong any more."""


class Outcome(NamedTuple):
    """What came of a seed. `finding` is empty if all is well, `excuse` says why it ended before its time."""

    seed: int
    finding: str
    excuse: str
    trace: list[str]
    digest: str
    simulated_s: float
    acknowledged: int
    cause: BaseException | None

    def check(self) -> None:
        """SimulationError if the cluster did what it must not do."""
        if self.finding:
            raise SimulationError(self.seed, self.finding, self.trace) from self.cause


def simulate(seed: int, *, nodes: int = 3, faults: Collection[str] = FAULTS, seconds: float = 15.0) -> Outcome:
    """Live one seed: so many nodes, under faults of these kinds, for about so many simulated seconds."""
    world = World(seed, nodes=nodes)
    watch = LogWatch(world)
    logger = logging.getLogger("ottla")
    logger.addHandler(watch)
    ended_s = 0.0

    async def live() -> None:
        nonlocal ended_s
        world.pauses.install()
        with world.scope:
            await _live(world, faults, seconds)
        ended_s = trio.current_time()

    try:
        with deterministic(seed, world.workers):
            determinism.run(live, seed, limit_s=_LIMIT_S)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is found
        if not world.finding:
            world.finding, world.cause = f"it fails: {error!r}", error
    finally:
        logger.removeHandler(watch)
    lines = [*world.trace, f"{world.network.sent_bytes} bytes sent in {ended_s:.6f} s"]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return Outcome(seed, world.finding, world.excuse, lines, digest, ended_s, world.history.acknowledged, world.cause)


async def _live(world: World, kinds: Collection[str], seconds: float) -> None:
    async with trio.open_nursery() as world.nursery:
        faults = Faults(world, kinds)
        for machine in world.machines.values():
            machine.start()
        partitions = await _make_topics(world)
        async with trio.open_nursery() as crowd:
            for client in _clients(world, partitions):
                crowd.start_soon(client.run)
            with trio.move_on_after(seconds):
                await faults.run()
                await trio.sleep_forever()
            faults.heal()
            world.is_ending = True
            crowd.cancel_scope.deadline = trio.current_time() + _PATIENCE_S
        if crowd.cancel_scope.cancelled_caught:
            world.fail(f"clients have not ended within {_PATIENCE_S:g} s, and nothing is wrong")
        await until_in_sync(world)
        await _audit(world, partitions)
        await check_replicas(world)
        check_nothing_held(world)
        await stop_all(world)


class _Admin(Client):
    """Makes the topics."""

    async def work(self) -> None:
        nodes = len(self.world.machines)
        count = self.rng.choice((1, 2, 3))
        topic = CreatableTopic(name="events", num_partitions=count, replication_factor=min(nodes, 3))
        while True:
            answer = await self.any_node(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
            code = ErrorCode(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            self.note(f"cannot create a topic yet: {code.name}")
            await trio.sleep(0.3)
        self.partitions: list[Partition] = [("events", index) for index in range(count)]


async def _make_topics(world: World) -> list[Partition]:
    admin = _Admin(world, "admin")
    while sum(machine.broker is not None for machine in world.machines.values()) < len(world.machines):  # noqa: ASYNC110
        await trio.sleep(0.05)
    await admin.run()
    return admin.partitions


def _clients(world: World, partitions: list[Partition]) -> list[Client]:
    rng = world.rng
    clients: list[Client] = [Producer(world, f"p{number}", partitions) for number in range(rng.randint(1, 2))]
    clients.append(Consumer(world, "reader", partitions, is_committed=False))
    if rng.random() < 0.5:
        clients.append(Consumer(world, "committed-reader", partitions, is_committed=True))
    return clients


async def _audit(world: World, partitions: list[Partition]) -> None:
    """Read all there is, and compare it with the history."""
    auditors = [Auditor(world, f"auditor{kind}", partitions, is_committed=bool(kind)) for kind in range(2)]
    with trio.move_on_after(_PATIENCE_S) as patience:
        async with trio.open_nursery() as nursery:
            for auditor in auditors:
                nursery.start_soon(auditor.run)
    if patience.cancelled_caught:
        world.fail(f"the partitions cannot be read to their end within {_PATIENCE_S:g} s, and nothing is wrong")
    for partition in partitions:
        world.history.check_log(partition, auditors[0].records[partition])
    world.history.check_committed(auditors[1].records)

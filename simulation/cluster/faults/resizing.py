"""A client that makes the cluster larger and smaller: nodes come with empty disks, others give up all and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.unregister_broker import UnregisterBrokerRequest
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.simulation.cluster.checks.in_sync import view
from ottla.simulation.cluster.clients.client import Client

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage, PartitionState
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.machines.machine import Machine
    from ottla.simulation.cluster.world import World

__all__ = ["Resizer"]

_LOOKS_EVERY_S: Final = 0.1
_ASKS_EVERY_S: Final = 1.0


class Resizer(Client):
    """Adds one node, then removes one, until the world ends; it completes what it has begun.

    `unlucky` is the node that may lose power: it gets what others give up only if nobody else can have it.
    """

    def __init__(self, world: World, name: str, unlucky: int) -> None:
        super().__init__(world, name)
        self._cluster = world
        self._unlucky = unlucky
        self._pause_s = world.rng.choice((0.5, 2.0))

    async def work(self) -> None:
        while True:
            await trio.sleep(self.rng.uniform(0, 2 * self._pause_s))
            if self.world.is_ending:
                return
            await self._add()
            await trio.sleep(self.rng.uniform(0, 2 * self._pause_s))
            await self._remove(self.rng.choice(list(self._cluster.machines.values())))

    async def _add(self) -> None:
        """Start a node with an empty disk, and let it have some of the partitions."""
        machine = self._cluster.add_machine()
        self.note(f"adds node {machine.node_id}")
        machine.start()
        async with view(self._cluster.store) as metadata:
            while not _is_registered(metadata.image, machine.node_id):
                await metadata.next()
        moved: dict[Partition, list[int]] = {}
        for partition, state in _partitions(await self._metadata()).items():
            target = _target(state)
            if self.rng.random() < 0.5 and machine.node_id not in target:
                target[self.rng.randrange(len(target))] = machine.node_id
                moved[partition] = target
        await self._move(moved)

    async def _remove(self, machine: Machine) -> None:
        """Move everything away from a node, stop it, and let the cluster forget it."""
        self.note(f"takes everything from node {machine.node_id}")
        while True:
            await self._empty(machine)
            machine.is_retired = True
            await self._stop(machine)
            if not _held_by(await self._metadata(), machine.node_id):
                break
            # A topic was made meanwhile, and it has got some of that.
            machine.is_retired = False
            machine.start()
        await self._unregister(machine.node_id)
        del self._cluster.machines[machine.node_id]
        # As long as it was registered, a topic for which too few others lived got some of it.
        while held := _held_by(await self._metadata(), machine.node_id):
            await self._move_away(machine.node_id, held)
            await trio.sleep(_ASKS_EVERY_S)
        self.note(f"has removed node {machine.node_id}")

    async def _empty(self, machine: Machine) -> None:
        while True:
            held = _held_by(await self._metadata(), machine.node_id)
            # What was moved away while the node was down stays as a stray log.
            served = None if machine.broker is None else list(machine.broker.replica_manager.partitions())
            if not held and served == []:
                return
            await self._move_away(machine.node_id, held)
            await trio.sleep(_ASKS_EVERY_S)

    async def _move_away(self, node_id: int, held: Mapping[Partition, PartitionState]) -> None:
        moved: dict[Partition, list[int]] = {}
        for partition, state in held.items():
            target = _target(state)
            others = [each for each in self._cluster.machines if each not in state.replicas]
            # Where all nodes have one there is a move already. None is made that adds nobody: it would end at once,
            # and perhaps leave nobody in sync but the one that may lose power.
            if node_id in target and others:
                lucky = [each for each in others if each != self._unlucky]
                target[target.index(node_id)] = self.rng.choice(lucky or others)
                moved[partition] = target
        await self._move(moved)

    async def _move(self, moved: Mapping[Partition, Sequence[int]]) -> None:
        if not moved:
            return
        topics: dict[str, ReassignableTopic] = {}
        for (name, index), replicas in moved.items():
            topic = topics.setdefault(name, ReassignableTopic(name=name, partitions=[]))
            topic.partitions.append(ReassignablePartition(partition_index=index, replicas=list(replicas)))
        answer = await self.any_node(AlterPartitionReassignmentsRequest(timeout_ms=5_000, topics=list(topics.values())))
        codes = {answer.error_code, *(part.error_code for each in answer.responses for part in each.partitions)}
        told = ", ".join(f"{name}-{index} to {replicas}" for (name, index), replicas in moved.items())
        self.note(f"moves {told}: {', '.join(sorted(ErrorCode(code).name for code in codes))}")

    async def _stop(self, machine: Machine) -> None:
        """Whatever happens to it, in the end it does not run."""
        while machine.process is not None:
            process = machine.process
            is_held = self._cluster.pauses.is_held(machine.node_id)
            if process.broker is not None and not process.is_stopping and not is_held:
                with trio.CancelScope(shield=True):
                    await machine.stop()
            else:
                await trio.sleep(_LOOKS_EVERY_S)

    async def _unregister(self, node_id: int) -> None:
        """Its session may have to end first."""
        while True:
            code = ErrorCode((await self.any_node(UnregisterBrokerRequest(broker_id=node_id))).error_code)
            if code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
                break
            self.note(f"cannot unregister node {node_id} yet: {code.name}")
            await trio.sleep(_ASKS_EVERY_S)
        is_known = node_id in (await self._metadata()).brokers
        self.world.check(not is_known, f"node {node_id} was unregistered, and is registered")

    async def _metadata(self) -> MetadataImage:
        """As the store itself has it."""
        async with view(self._cluster.store) as metadata:
            return metadata.image


def _is_registered(image: MetadataImage, node_id: int) -> bool:
    broker = image.brokers.get(node_id)
    return broker is not None and not broker.fenced


def _partitions(image: MetadataImage) -> dict[Partition, PartitionState]:
    return {
        (name, index): state
        for name in sorted(image.topics)
        for index, state in enumerate(image.topics[name].partitions)
    }


def _held_by(image: MetadataImage, node_id: int) -> dict[Partition, PartitionState]:
    """The partitions of which a node has a replica, or is to give one up."""
    return {partition: state for partition, state in _partitions(image).items() if node_id in state.replicas}


def _target(state: PartitionState) -> list[int]:
    """The replicas that a partition has when its move has ended."""
    return [each for each in state.replicas if each not in state.removing_replicas]

"""What must be true of in-sync sets at any time, as the metadata store has them, whatever each node knows of them.

A replica that is in one, or may lead without being in it, has all that anybody takes to be committed. Clients notice
a wrong set only when the wrong replica is elected and records are lost; here it is noticed at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata.image import MetadataImage
from ottla.metadata.image_delta import evolve

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta, PartitionState
    from ottla.metastore.memory import MemoryMetadataStore
    from ottla.metastore.store import Watch
    from ottla.simulation.cluster.world import World
    from ottla.storage.log.partition_log import PartitionLog

__all__ = ["View", "in_sync_sets_watched", "view"]

_EVERY_S: Final = 0.05


class View:
    """The metadata as the store has them."""

    def __init__(self, image: MetadataImage, watch: Watch) -> None:
        self.image = image
        self._watch = watch

    async def next(self) -> MetadataDelta:
        """The next change, before time goes on: no node has been told of it."""
        change = await self._watch.receive()
        delta = evolve(self.image, change.revision, change.puts, change.deletes)
        self.image = delta.after
        return delta


@asynccontextmanager
async def view(store: MemoryMetadataStore) -> AsyncIterator[View]:
    """Look at the store itself, without a network between."""
    listing = await store.list("")
    async with store.watch("", listing.revision) as watch:
        yield View(evolve(MetadataImage(), listing.revision, listing.entries, ()).after, watch)


@asynccontextmanager
async def in_sync_sets_watched(world: World) -> AsyncIterator[None]:
    """Check all of them at each change of the metadata, and twenty times a second, until the block is left."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, world)
        yield
        nursery.cancel_scope.cancel()


async def _watch(world: World) -> None:
    async with view(world.store) as metadata:
        while True:
            with trio.move_on_after(_EVERY_S):
                _check_joining(world, await metadata.next())
            # Of nodes that serve: what another one has is seen once it has recovered it. A log that is kept as a stray
            # one is nobody's replica, and knows nothing of what was committed.
            nodes = [(node_id, machine.broker) for node_id, machine in world.machines.items()]
            held = [(node_id, broker.replica_manager._partitions) for node_id, broker in nodes if broker is not None]
            for topic in metadata.image.topics.values():
                for index, state in enumerate(topic.partitions):
                    found = [(node_id, hosted.of_topic(topic.topic_id).get(index)) for node_id, hosted in held]
                    logs = {node_id: partition.log for node_id, partition in found if partition is not None}
                    _check(world, topic.name, index, state, logs)


def _check_joining(world: World, delta: MetadataDelta) -> None:
    """Only the leader adds to a set: nobody else knows who has what is committed."""
    for topic, index, before, after in delta.changed_partitions:
        if before is None or before.leader != after.leader:
            continue  # it was elected, perhaps with nobody in sync but itself
        joining = {*after.isr} - {*before.isr}
        leader = world.machines[after.leader].broker if after.leader in world.machines else None
        if joining and leader is not None:
            change = leader.replica_manager.get_partition(topic.topic_id, index)._isr_change
            world.check(
                change is not None and joining <= change.joining.keys(),
                f"{joining} come to be in sync of {topic.name}-{index}, and node {after.leader}, which leads it, "
                "has not asked for that",
            )


def _check(world: World, topic: str, index: int, state: PartitionState, logs: Mapping[int, PartitionLog]) -> None:
    if not (state.leader in state.isr or (state.leader < 0 and state.isr)):
        world.fail(f"{topic}-{index} is led by {state.leader}, and in sync are {state.isr}")
    committed = max((log.high_watermark for log in logs.values()), default=0)
    for node_id in (*state.isr, *state.elr):
        log = logs.get(node_id)
        if log is not None and log.log_end_offset < committed:
            world.fail(
                f"{topic}-{index} is committed up to {committed}, and node {node_id} has it up to {log.log_end_offset} "
                f"alone and may lead it: led by {state.leader}, in sync {state.isr}, eligible {state.elr}"
            )

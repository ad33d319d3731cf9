"""What must be true when nothing is wrong any more and nobody does anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.server.broker import Broker
    from ottla.simulation.cluster.world import World
    from ottla.storage.disk.simulated_disk import SimulatedDisk

__all__ = ["check_nothing_held", "check_quiet", "check_replicas", "stop_all", "until_in_sync"]

_IN_SYNC_S: Final = 60.0
_STOP_S: Final = 1.0
_GIVEN_BACK_S: Final = 5.0
_QUIET_S: Final = 1.0
_SENDS_A_PAIR: Final = 15
"""How often one node sends something to another in that time, at most, or to clients that have not closed their
connections yet: a few fetches wait half a second each."""


async def until_in_sync(world: World) -> None:
    """Every replica comes back into its in-sync set, by itself."""
    with trio.move_on_after(_IN_SYNC_S):
        while True:
            missing = [
                f"node {node_id} sees {what}"
                for node_id, machine in world.machines.items()
                for what in _missing(machine.image, len(world.machines))
            ]
            if not missing:
                return
            await trio.sleep(0.2)
    world.fail(f"not in sync after {_IN_SYNC_S:g} s, and nothing is wrong: {'; '.join(missing[:3])}")


def _missing(image: MetadataImage | None, nodes: int) -> list[str]:
    if image is None:
        return ["nothing, as it does not serve"]
    found = [] if sum(1 for _ in image.live_brokers()) == nodes else ["fewer brokers"]
    for name in sorted(image.topics):
        for index, state in enumerate(image.topics[name].partitions):
            is_moving = state.adding_replicas or state.removing_replicas
            if set(state.isr) != set(state.replicas) or state.leader < 0 or is_moving:
                found.append(f"{name}-{index} led by {state.leader}, in sync {state.isr} of {state.replicas}")
    return found


async def check_replicas(world: World) -> None:
    """All replicas of a partition end at the same offset and hold the same bytes, a moment after the last record."""
    brokers = {node_id: machine.broker for node_id, machine in world.machines.items()}
    image = next(broker.metadata for broker in brokers.values() if broker is not None)
    for name in sorted(image.topics):
        topic = image.topics[name]
        for index, state in enumerate(topic.partitions):
            contents: dict[int, tuple[int, int, bytes]] = {}
            logs = [broker and broker.log_manager.get_log(topic.topic_id, index) for broker in brokers.values()]
            with trio.move_on_after(30):
                while True:
                    contents.clear()
                    # Of tiered topics each has on its disk what its retention has left.
                    start = max((log.log_start_offset for log in logs if log), default=0)
                    for node_id in state.replicas:
                        broker = brokers[node_id]
                        log = None if broker is None else broker.log_manager.get_log(topic.topic_id, index)
                        if log is None:
                            contents[node_id] = (-1, -1, b"")
                            continue
                        content = b""
                        # Internal topics are compacted, by each replica in its time.
                        if not topic.is_internal and log.log_end_offset > start >= log.log_start_offset:
                            records, _ = await log.read_batches(start, log.log_end_offset)
                            with records:
                                content = records.to_bytes()
                        contents[node_id] = (log.log_end_offset, log.high_watermark, content)
                    if len(set(contents.values())) == 1:
                        break
                    await trio.sleep(0.5)
            if len(set(contents.values())) != 1:
                shown = {node_id: (end, mark, len(data)) for node_id, (end, mark, data) in contents.items()}
                world.fail(f"the replicas of {name}-{index} differ (end, high watermark, bytes): {shown}")


async def check_nothing_held(world: World) -> None:
    """Clients are gone: nothing of what they asked for is held, or waits. What nodes ask each other may."""
    for node_id, machine in world.machines.items():
        broker = machine.broker
        assert broker is not None
        with trio.move_on_after(_GIVEN_BACK_S):
            while _held(broker, machine.disk, followers=len(world.machines) - 1):  # noqa: ASYNC110 - it is simulated time
                await trio.sleep(0.01)
        _check_held(world, node_id, _held(broker, machine.disk, followers=len(world.machines) - 1))


async def check_quiet(world: World) -> None:
    """Nodes that have nothing to do ask each other little: nothing is asked again at once, without end."""
    before = world.network.sends
    await trio.sleep(_QUIET_S)
    sends = world.network.sends - before
    most = _SENDS_A_PAIR * len(world.machines) ** 2
    world.check(sends <= most, f"nodes that have nothing to do send {sends} times in {_QUIET_S:g} s")


def _held(broker: Broker, disk: SimulatedDisk, *, followers: int) -> dict[str, int]:
    """What a node holds beyond what its followers need: one fetch of each waits."""
    replicas, storage = broker.replica_manager, broker.log_manager
    groups = vars(broker.coordinators).get("groups")
    purgatories = [replicas.append_purgatory, replicas.delete_records_purgatory, replicas.share_fetch_purgatory]
    if groups is not None:
        purgatories.append(groups.answers)
    handles = 1 + len(storage.context.fd_cache) + sum(1 for _ in storage.stores())
    found = {
        "bytes of requests": 0 if followers else broker.budget.used_bytes,
        "bytes of responses": replicas.response_budget.used_bytes,
        "tasks that wait for room": broker.budget.waiting + replicas.response_budget.waiting,
        "requests of which a part has come": len(broker.budget.unfinished),
        "fetches that wait": max(0, replicas.fetch_purgatory.watching - followers),
        "files open": max(0, disk.open_handles - handles),
        **{f"operations in the purgatory of {each.name}": each.watching for each in purgatories},
    }
    return {what: count for what, count in found.items() if count}


def _check_held(world: World, node_id: int, held: dict[str, int]) -> None:
    told = ", ".join(f"{count} {what}" for what, count in held.items())
    world.check(not held, f"node {node_id} holds {told}, and nobody asks")


async def stop_all(world: World) -> None:
    """Stop one node after the other, in order; each gives back what it had.

    What slow disks take does not count: a stop writes a dozen things one after the other, and a seed in ten thousand
    makes most of them slow.
    """
    for node_id, machine in world.machines.items():
        process = machine.process
        assert process is not None
        broker = process.broker
        assert broker is not None
        began, held_up_s = trio.current_time(), world.workers.held_up_s
        disk = machine.disk
        await machine.stop()
        took_s = max(0.0, trio.current_time() - began - (world.workers.held_up_s - held_up_s))
        world.check(took_s < _STOP_S, f"node {node_id} has taken {took_s:.1f} s to stop")
        world.check(disk.open_handles == 0, f"node {node_id} leaves {disk.open_handles} files open")
        held = broker.pool.counters.in_use
        world.check(held == 0, f"node {node_id} leaves {held} buffers in use")
        _check_held(world, node_id, _held(broker, disk, followers=0))

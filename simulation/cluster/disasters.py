"""An administrator's bad days: all nodes are down, and the metadata is lost, or an older copy of it is put back.

Property: each record that was acknowledged is in the end in a log of some node, served or stray, in a file that was set
aside, or in the object store, named by a manifest. After a restore from all folders, readers see all of them.

A node that was killed, and has not started since an older copy was made, finds nothing that tells it that metadata is
old. It sets aside what it knew to be committed, which may lack what was acknowledged just before the kill
(docs/operations.md). What no other folder has, either, may be lost so.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.kproto.records import iter_batches, iter_records
from ottla.metadata import keys
from ottla.metadata.from_data import choose, metadata_of
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Operation, Put
from ottla.simulation.cluster.checks.audit import audit
from ottla.simulation.cluster.checks.ending import check_replicas, until_in_sync
from ottla.simulation.cluster.clients.admin import Administrator
from ottla.simulation.cluster.clients.producer import Producer
from ottla.simulation.cluster.determinism import deterministic
from ottla.simulation.cluster.faults.faults import Faults
from ottla.simulation.cluster.machines.epoll import simulated_epoll
from ottla.simulation.cluster.simulation import make_topics
from ottla.simulation.cluster.world import World
from ottla.simulation.harness import scheduling
from ottla.simulation.harness.outcome import SimulationError
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.storage.found_topics import FoundTopics, find_topics
from ottla.storage.inspect.salvage import salvage
from ottla.storage.kept_logs import cut_files, read_kept_logs, write_kept_logs
from ottla.storage.log_manager import LogManager
from ottla.tiers.listing import find_clusters, list_manifests
from ottla.tiers.listing import find_topics as find_topics_in_objects
from ottla.tiers.manifest_file import ManifestFile
from ottla.tiers.reading.disk_cache import DiskCache
from ottla.tiers.reading.reader import TierReader

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.machines.machine import Machine
    from ottla.storage.disk.simulated_disk import SimulatedDisk

__all__ = ["Disaster", "Ended", "live_through"]

_LIMIT_S: Final = 1_000.0
_PATIENCE_S: Final = 90.0
_SECONDS: Final = 8.0
_NEVER_MS: Final = 1 << 40
#: For so long before a kill a node may not have noted what was committed: until its leader's next answer, and
#: `replica.high.watermark.checkpoint.interval.ms`.
_UNKNOWN_S: Final = 6.0
_LOOKED_AT: Final = LogConfig(delete=False)
#: Those that end with their processes.
_LEASED: Final = (keys.ALIVE, keys.CONTROLLER)


class Disaster:
    """What happens to the metadata."""

    LOST = "it is lost, and restored from the folders of all nodes"
    OLDER = "an older copy of it is put back"


class Ended(NamedTuple):
    """What came of a seed: the number of acknowledged records, those that were in no served log, and the trace.

    `unknown` of them are nowhere: only nodes that were killed had them, and did not know that they were committed.
    """

    acknowledged: int
    set_aside: int
    unknown: int
    trace: list[str]


class _Copy(NamedTuple):
    """The metadata of some moment, and how often each node had started by then."""

    operations: list[Operation]
    starts: dict[int, int]


class _Found(NamedTuple):
    """How many acknowledged records are in no served log in the end, and how many are nowhere."""

    set_aside: int
    unknown: int


def live_through(seed: int, disaster: str, *, nodes: int = 3) -> Ended:
    """Run one seed. Raises SimulationError if a record was lost."""
    world = World(seed, nodes=nodes)
    watch = _Watch(world)
    logger = logging.getLogger("ottla")
    logger.addHandler(watch)
    found = _Found(0, 0)

    async def live() -> None:
        nonlocal found
        world.pauses.install()
        with world.scope:
            found = await _live(world, disaster)

    try:
        with deterministic(seed, world.workers), simulated_epoll(world.network):
            scheduling.run(live, seed, limit_s=_LIMIT_S, hung=world.hung)
    except scheduling.HangError:
        pass  # the world was told
    finally:
        logger.removeHandler(watch)
    if world.finding:
        raise SimulationError(seed, world.finding, world.trace) from world.cause
    return Ended(world.history.acknowledged, *found, world.trace)


class _Watch(logging.Handler):
    """Adds the nodes' warnings to the trace. Errors that say what was set aside are as it should be."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(f"{record.levelname.lower()}: {record.getMessage()}")


async def _live(world: World, disaster: str) -> _Found:
    async with trio.open_nursery() as world.nursery:
        for machine in world.machines.values():
            machine.start()
        partitions = await make_topics(world)
        copy = await _work(world, partitions)
        await _end_all(world, kills=disaster == Disaster.LOST)
        world.note(f"disaster: {disaster}")
        world.store = MemoryMetadataStore()
        is_older = disaster == Disaster.OLDER
        may_be_unknown = _may_be_unknown(world, copy) if is_older else frozenset()
        await world.store.commit([], copy.operations if is_older else await _from_data(world))
        for machine in world.machines.values():
            machine.is_retired = False
            machine.start()
        await until_in_sync(world)
        # Topics without records do not come back (docs/operations.md).
        if disaster == Disaster.LOST and world.history.acknowledged:
            await audit(world, partitions, patience_s=_PATIENCE_S)
        await check_replicas(world)
        await _end_all(world)
        return await _check_nothing_lost(world, partitions, may_be_unknown)


async def _work(world: World, partitions: list[Partition]) -> _Copy:
    """Let clients work while nodes come and go and partitions move; returns a copy of the metadata of some moment."""
    faults = Faults(world, ("kill", "stop"))
    clients = [Producer(world, f"p{number}", partitions) for number in range(2)]
    async with trio.open_nursery() as crowd:
        for client in clients:
            crowd.start_soon(client.run)
        crowd.start_soon(Administrator(world, "admin", partitions).run)
        crowd.start_soon(faults.run)
        await trio.sleep(world.rng.uniform(0, _SECONDS))
        entries = (await world.store.list("/")).entries
        operations: list[Operation] = [
            Put(entry.key, entry.value) for entry in entries if not entry.key.startswith(_LEASED)
        ]
        copy = _Copy(operations, {node_id: machine.starts for node_id, machine in world.machines.items()})
        world.note("the metadata is copied")
        await trio.sleep(world.rng.uniform(1, _SECONDS))
        crowd.cancel_scope.cancel()
    return copy


async def _end_all(world: World, *, kills: bool = False) -> None:
    """Every node ends, one after the other, some of them perhaps by kill -9; those that are down stay down."""
    machines = list(world.machines.values())
    world.rng.shuffle(machines)
    for machine in machines:
        machine.is_retired = True
        if machine.process is not None and not machine.process.is_stopping:
            await (machine.kill() if kills and world.rng.random() < 0.5 else machine.stop())
        elif machine.process is not None:
            await machine.process.ended.wait()


async def _from_data(world: World) -> list[Operation]:
    """What `ottla restore --metadata-from-data` makes of the folders."""
    found: dict[int, FoundTopics] = {}
    cluster_id = ""
    for node_id, machine in world.machines.items():
        async with _folder(world, machine) as manager:
            found[node_id] = await find_topics(manager)
            cluster_id = manager.node_dir.cluster_id or cluster_id
        machine.disk = machine.disk.crash()
    choice = choose(found)
    for node_id, machine in world.machines.items():
        path = f"/data/node-{node_id}"
        logs = [*read_kept_logs(machine.disk, path), *choice.kept_logs(node_id, machine.clock.time_ms())]
        write_kept_logs(machine.disk, path, {(log.topic_id, log.partition): log for log in logs}.values())
    return metadata_of(choice, cluster_id, found)


def _may_be_unknown(world: World, copy: _Copy) -> frozenset[bytes]:
    """What only nodes have that were killed, and have not started since the copy: acknowledged just before the kill."""
    known: set[bytes] = set()
    unknown: set[bytes] = set()
    for node_id, machine in world.machines.items():
        values = {value for file in _data_files(machine.disk, f"/data/node-{node_id}") for value in _in(machine, file)}
        if machine.killed_at_s is None or machine.starts != copy.starts[node_id]:
            known |= values
            continue
        since_s = machine.killed_at_s - _UNKNOWN_S
        for value in values:
            attempt = world.history.attempts.get(value)
            if attempt is not None and attempt.acknowledged_at_s is not None:
                (unknown if attempt.acknowledged_at_s > since_s else known).add(value)
    return frozenset(unknown - known)


def _data_files(disk: SimulatedDisk, folder: str) -> Iterator[str]:
    for path in (f"{folder}/{name}" for name in disk.listdir(folder)):
        if path.endswith(".data"):
            yield path
        elif disk.is_directory(path):
            yield from _data_files(disk, path)


def _in(machine: Machine, file: str) -> Iterator[bytes]:
    """The records of a file, whatever its log has of them."""
    for batch in salvage(machine.disk, file):
        yield from _values(batch.content[batch.position : batch.position + batch.header.size_bytes])


async def _check_nothing_lost(world: World, partitions: list[Partition], may_be_unknown: frozenset[bytes]) -> _Found:
    """Look for every acknowledged record in all folders, and in the object store."""
    served = await _in_objects(world)
    aside: set[bytes] = set()
    for node_id, machine in world.machines.items():
        path = f"/data/node-{node_id}"
        kept = {(log.topic_id, log.partition) for log in read_kept_logs(machine.disk, path)}
        for file in cut_files(machine.disk, path):
            aside.update(_in(machine, file))
        async with _folder(world, machine) as manager:
            for topic in (await find_topics(manager)).topics:
                for partition in topic.logs:
                    into = aside if (topic.topic_id, partition) in kept else served
                    log = await manager.open_log(topic.topic_id, topic.name, partition, _LOOKED_AT)
                    offset = log.log_start_offset
                    while offset < log.log_end_offset:
                        records, offset = await log.read_batches(offset, log.log_end_offset)
                        with records:
                            into.update(_values(records.to_bytes()))
    acknowledged = {
        attempt.value
        for attempt in world.history.attempts.values()
        if attempt.partition in partitions and attempt.offset is not None
    }
    nowhere = acknowledged - served - aside
    lost = sorted(nowhere - may_be_unknown)
    world.check(not lost, f"{len(lost)} acknowledged records are nowhere, such as {lost[:3]}")
    return _Found(len(acknowledged - served), len(nowhere))


async def _in_objects(world: World) -> set[bytes]:
    """The records of tiered topics that manifests name."""
    store, found = world.shared_objects, set[bytes]()
    reader = TierReader(store, DiskCache(MemoryDisk(), "", 0))
    async with reader.run():
        for cluster_id in await find_clusters(store):
            async for names in find_topics_in_objects(store, cluster_id):
                for partition in (await list_manifests(store, names)).partitions:
                    manifest = await ManifestFile(store, names.manifest(partition), names.topic_id, partition).refresh()
                    offset, end = manifest.log_start_offset, manifest.end_offset
                    while offset < end:
                        records = await reader.read(names, manifest, offset, max_bytes=1 << 20, end_offset=end)
                        found.update(_values(bytes(records.content)))
                        offset = records.next_offset
    return found


def _values(data: bytes) -> set[bytes]:
    return {
        bytes(record.value)
        for position, batch in iter_batches(data)
        if not batch.is_control
        for record in iter_records(data, position, batch)
        if record.value is not None
    }


@asynccontextmanager
async def _folder(world: World, machine: Machine) -> AsyncIterator[LogManager]:
    """The log manager of a node that is down."""
    config = StorageConfig(cleaner_backoff_ms=_NEVER_MS, disk_reserve_bytes=0)
    run_blocking = world.workers.run
    manager = LogManager(
        machine.disk, "/data", config, machine.clock, node_id=machine.node_id, run_blocking=run_blocking
    )
    async with manager.run():
        yield manager

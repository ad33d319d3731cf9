"""The older parts of tiered topics' logs, in an object store: the owner of everything that goes on there by itself.

There is one in a node that has `ottla.remote.url`, and none elsewhere. It copies what this node leads, applies
retention to both parts of what it holds, looks at the object store for new leaders, sweeps what nobody needs, and
deletes the objects of deleted topics.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

import trio

from ottla.replica.errors import ReplicaError
from ottla.replica.remote.copier import Copier
from ottla.replica.remote.expiry import expire_as_follower, expire_as_leader
from ottla.replica.remote.failure_log import FailureLog
from ottla.replica.tiered.remote_log import RemoteCounters, RemoteLog, SharedByRemoteLogs
from ottla.replica.tiered.rules import is_given_up
from ottla.runtime.backoff import Backoff
from ottla.runtime.time_slice import TimeSlice, chunks
from ottla.storage.errors import LogClosedError, StorageError
from ottla.tiers.errors import FencedUploadError, StaleUploadError, SupersededError, TierError
from ottla.tiers.manifest_file import ManifestFile
from ottla.tiers.names import SnapshotNames, TopicNames
from ottla.tiers.reading.reader import TierReader
from ottla.tiers.snapshot import read_generation
from ottla.tiers.sweep import delete_topic, sweep_topic

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta, TopicImage
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition
    from ottla.replica.tiered.rules import RemoteRules
    from ottla.settings.config import TopicConfig
    from ottla.storage.clock import Clock
    from ottla.storage.node_dir import NodeDir
    from ottla.tiers.object_store import ObjectStore
    from ottla.tiers.reading.disk_cache import DiskCache

__all__ = ["RemoteSettings", "RemoteStorage"]

logger = logging.getLogger(__name__)

_CONCURRENT_LOOKS: Final = 8
_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 30.0
#: Somebody else leads by now, or the log was deleted: nothing to tell anybody.
_PASSING: Final = (FencedUploadError, StaleUploadError, LogClosedError)


class RemoteSettings(Protocol):
    """The settings, which may change."""

    @property
    def remote_log_manager_task_interval_ms(self) -> int: ...
    @property
    def remote_list_offsets_request_timeout_ms(self) -> int: ...
    @property
    def remote_log_manager_copy_max_bytes_per_second(self) -> int: ...
    @property
    def ottla_remote_sweep_interval_ms(self) -> int: ...
    def topic_config(self, configs: Mapping[str, str]) -> TopicConfig: ...


class _Look(NamedTuple):
    """A partition of which a new leader wants to know what is in the object store."""

    remote: RemoteLog
    leader_epoch: int


class RemoteStorage:
    """See the module. `run` is its life; the task that applies metadata calls `apply`, after the replica manager's."""

    def __init__(
        self,
        store: ObjectStore,
        cache: DiskCache,
        settings: RemoteSettings,
        clock: Clock,
        node_dir: NodeDir,
        *,
        node_id: int,
    ) -> None:
        self.store = store
        self.counters = RemoteCounters()
        self.copier = Copier(store, self.counters, settings, node_id)
        self.reader = TierReader(store, cache)
        self._cache = cache
        self._settings = settings
        self._node_dir = node_dir
        self._clock = clock
        self._node_id = node_id
        self._shared = SharedByRemoteLogs(self.reader, self.counters, settings)
        self._cluster_id = ""
        self._looks: dict[tuple[UUID, int], _Look] = {}
        self._wanted = trio.Event()
        self._looked = trio.Event()
        self._deleted: dict[str, TopicNames] = {}
        self._has_deleted = trio.Event()
        self._given_up: dict[UUID, TopicNames] = {}
        #: In which epochs this node has emptied what is given up.
        self._emptied: dict[tuple[UUID, int], int] = {}
        self.failures = FailureLog()
        self._generation = 0

    @property
    def generation(self) -> int:
        """How often the cluster was restored from its objects (`ottla.tiers.snapshot`)."""
        return self._generation

    def begin(self, generation: int) -> None:
        """Learn that, before anything is done."""
        self._generation = generation

    @property
    def failing(self) -> dict[str, str]:
        """What fails, by name, and why."""
        return self.failures.failing

    # What the replica manager calls.

    def open(self, cluster_id: str, topic: str, topic_id: UUID, partition: int, rules: RemoteRules) -> RemoteLog:
        """The part of a partition that is in the object store. Nobody is asked anything yet."""
        names = TopicNames(cluster_id, topic, topic_id)
        file = ManifestFile(self.store, names.manifest(partition), topic_id, partition)
        return RemoteLog(f"{topic}-{partition}", names, file, rules, self._shared)

    def look_at(self, key: tuple[UUID, int], remote: RemoteLog, leader_epoch: int) -> None:
        """Find out what is in the object store, and then tell the partition's state again."""
        self._looks[key] = _Look(remote, leader_epoch)
        self._wanted.set()

    async def until_looked(self) -> None:
        """Wait until every new leader knows what is in the object store, and has gone on from there."""
        while self._looks:
            self._looked = trio.Event()
            await self._looked.wait()

    async def apply(self, delta: MetadataDelta, manager: ReplicaManager) -> None:
        """Follow the metadata: look for what this node begins to lead, and delete what belongs to deleted topics."""
        self._cluster_id = delta.after.cluster_id
        for topic in delta.deleted_topics:
            self._note_deleted(topic)
        for topic in (*delta.created_topics, *delta.reconfigured_topics):
            names = TopicNames(self._cluster_id, topic.name, topic.topic_id)
            own = self._settings.topic_config(topic.configs)
            if "remote.log.delete.on.disable" in topic.configs and is_given_up(own):
                self._given_up[topic.topic_id] = names
            else:
                self._given_up.pop(topic.topic_id, None)
        time_slice = TimeSlice()
        for change in delta.changed_partitions:
            if time_slice.is_over:
                await time_slice.maybe_yield()
            if change.after.leader != self._node_id or not self._may_be_remote(change.topic):
                continue
            try:
                held = manager.get_partition(change.topic.topic_id, change.partition)
            except (ReplicaError, StorageError):
                continue
            if held.remote is not None and held.is_leader and not held.knows_log_start:
                self.look_at((held.topic_id, held.index), held.remote, held.leader_epoch)

    @staticmethod
    def _may_be_remote(topic: TopicImage) -> bool:
        return "remote.storage.enable" in topic.configs

    def _note_deleted(self, topic: TopicImage) -> None:
        self._given_up.pop(topic.topic_id, None)
        self.copier.forget(topic.topic_id)
        is_ours = any(self._node_id in state.replicas for state in topic.partitions)
        if not self._may_be_remote(topic) or not is_ours:
            return
        if self._node_dir.is_ahead:
            keys = {"topic": topic.name}
            text = "the objects of %s stay: the metadata may be older than this node's data"
            logger.warning(text, topic.name, extra=keys)
            return
        names = TopicNames(self._cluster_id, topic.name, topic.topic_id)
        self._deleted[names.folder] = names
        self._has_deleted.set()

    # Its life.

    async def run(
        self, manager: ReplicaManager, publish_again: Callable[[Iterable[tuple[UUID, int]]], Awaitable[None]]
    ) -> None:
        """Until cancelled. Raises OSError if the cache's folder cannot be made."""
        await self._cache.open()
        async with self.reader.run(), trio.open_nursery() as nursery:
            nursery.start_soon(self.look_at_all, manager, publish_again)
            nursery.start_soon(self._repeat, partial(self.copy_all, manager))
            nursery.start_soon(self._repeat, partial(self.expire_all, manager))
            nursery.start_soon(self._sweep_all, manager)
            nursery.start_soon(self._delete_all)

    async def _repeat(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Again at once as long as it brings something."""
        while True:
            if not await work():
                await trio.sleep(self._settings.remote_log_manager_task_interval_ms / 1000)

    # New leaders.

    async def look_at_all(
        self, manager: ReplicaManager, publish_again: Callable[[Iterable[tuple[UUID, int]]], Awaitable[None]]
    ) -> None:
        """Look for all new leaders, until cancelled."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        while True:
            while not self._looks:
                self._wanted = trio.Event()
                await self._wanted.wait()
            some = list(self._looks.items())[:_CONCURRENT_LOOKS]
            before = len(self._looks)
            async with trio.open_nursery() as nursery:
                for key, look in some:
                    nursery.start_soon(self._look, key, look)
            left_out = [key for key, look in some if self._looks.get(key) is not look and not _leads(manager, key)]
            if left_out:
                await publish_again(left_out)
            self._looked.set()
            if len(self._looks) >= before:
                await backoff.wait()
            else:
                backoff.reset()

    async def _look(self, key: tuple[UUID, int], look: _Look) -> None:
        try:
            await look.remote.look(look.leader_epoch)
        except TierError as error:
            self.failures.failed(look.remote.name, "cannot be found in the object store", error)
            if self._looks.get(key) is look:
                self._looks[key] = self._looks.pop(key)  # after the others
            return
        self.failures.well(look.remote.name)
        if self._looks.get(key) is look:
            del self._looks[key]

    # Copying and retention.

    async def copy_all(self, manager: ReplicaManager) -> bool:
        """One pass; whether anything was copied."""
        topics: dict[UUID, list[tuple[Partition, RemoteLog]]] = {}
        for held in await _held(manager, _is_tiered):
            remote = held.remote
            if remote is not None and held.is_leader and remote.rules.is_copied:
                topics.setdefault(held.topic_id, []).append((held, remote))
        has_copied = False
        for group in topics.values():
            has_copied |= await self.copier.copy_topic(group, self._clock.time_ms, self.failures)
        return has_copied

    async def expire_all(self, manager: ReplicaManager) -> bool:
        """One pass of retention over everything that this node holds."""
        if manager.may_be_replaced():
            return False
        for held in await _held(manager, _is_tiered):
            remote = held.remote
            if remote is None:
                continue  # not any more
            expire = expire_as_leader if held.is_leader else expire_as_follower
            try:
                await expire(held, remote, self._clock.time_ms())
            except _PASSING:
                continue
            except (TierError, ReplicaError, StorageError, OSError) as error:
                self.failures.failed(f"retention of {remote.name}", "takes nothing", error)
            else:
                # Perhaps nobody was asked for it.
                self.failures.well(f"retention of {remote.name}", has_asked=False)
        await self._empty_given_up(manager)
        return False

    async def _empty_given_up(self, manager: ReplicaManager) -> None:
        """Forget what was copied of topics that are no longer tiered; its objects are swept a day later."""
        for topic_id, names in list(self._given_up.items()):
            for held in await _held(manager, lambda held, topic_id=topic_id: held.topic_id == topic_id):  # type: ignore[misc]
                key = (topic_id, held.index)
                if not held.is_leader or held.remote is not None:
                    continue
                epoch = held.leader_epoch
                if self._emptied.get(key) == epoch:
                    continue
                file = ManifestFile(self.store, names.manifest(held.index), topic_id, held.index)
                try:
                    manifest = await file.refresh()
                    if len(manifest):
                        start = held.log.log_start_offset
                        await file.change(lambda found, at=start, epoch=epoch: found.emptied_at(at, epoch))  # type: ignore[misc]
                        self.counters.deleted(len(manifest))
                except FencedUploadError:
                    continue
                except TierError as error:
                    self.counters.delete_failed()
                    self.failures.failed(f"{held.topic}-{held.index}", "stays in the object store", error)
                    continue
                self._emptied[key] = epoch

    # What nobody needs.

    @property
    def _probe(self) -> str:
        return f"{self._cluster_id}/probes/{self._node_id}"

    async def _sweep_all(self, manager: ReplicaManager) -> None:
        while True:
            await trio.sleep(self._settings.ottla_remote_sweep_interval_ms / 1000)
            found: dict[UUID, TopicNames] = dict(self._given_up)
            for held in await _held(manager, _is_tiered):
                if held.index == 0 and held.is_leader and held.remote is not None:
                    found[held.topic_id] = held.remote.names
            for names in found.values():
                try:
                    await sweep_topic(self.store, names, probe=self._probe)
                except TierError as error:
                    self.failures.failed(names.folder, "cannot be swept", error)
                else:
                    self.failures.well(names.folder)

    async def _delete_all(self) -> None:
        """Delete the objects of deleted topics. A note in the object store says of which that has begun."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        has_looked = False
        while True:
            try:
                if not has_looked and self._cluster_id:
                    await self.find_deleted()
                    has_looked = True
                await self.delete_next()
                backoff.reset()
            except TierError as error:
                self.counters.delete_failed()
                self.failures.failed("deleted topics", "stay in the object store", error)
                await backoff.wait()
                continue
            self.failures.well("deleted topics")
            self._has_deleted = trio.Event()
            if not self._deleted:
                await self._has_deleted.wait()

    async def delete_next(self) -> None:
        """Delete what is known to be deleted. Raises TierError."""
        for folder, names in list(self._deleted.items()):
            await self._delete(names)
            del self._deleted[folder]

    async def find_deleted(self) -> None:
        """Find of which topics a deletion has begun, in this process or before. Raises TierError."""
        prefix = f"{self._cluster_id}/deleted/"
        after = ""
        while page := await self.store.find(prefix, after):
            for info in page:
                fields = json.loads((await self.store.get(info.name)).content)
                names = TopicNames(self._cluster_id, fields["topic"], UUID(fields["topic_id"]))
                self._deleted[names.folder] = names
            after = page[-1].name

    async def require_ours(self) -> None:
        """Raise SupersededError if another cluster was restored from the objects, whose they are then."""
        if await read_generation(self.store, SnapshotNames(self._cluster_id).metadata) > self.generation:
            raise SupersededError("another cluster was restored from the objects of this one")

    async def _delete(self, names: TopicNames) -> None:
        await self.require_ours()
        await self.store.put(
            names.deletion_note, json.dumps({"topic": names.topic, "topic_id": str(names.topic_id)}).encode()
        )
        removed = await delete_topic(self.store, names)
        await self.store.delete([names.deletion_note])
        keys = {"topic": names.topic, "objects": removed}
        logger.info("the topic %s was deleted, and its %d objects are", names.topic, removed, extra=keys)


async def _held(manager: ReplicaManager, is_wanted: Callable[[Partition], bool]) -> list[Partition]:
    """Those of this node's partitions, looked at in steps. By the time that one is come to it may have changed.

    No generator: one that is cancelled while it is asked is left unfinished.
    """
    found: list[Partition] = []
    time_slice = TimeSlice()
    for some in chunks(manager.partitions()):
        found += [held for held in some if is_wanted(held)]
        await time_slice.maybe_yield()
    return found


def _is_tiered(held: Partition) -> bool:
    return held.remote is not None


def _leads(manager: ReplicaManager, key: tuple[UUID, int]) -> bool:
    try:
        return manager.get_partition(*key).is_leader
    except (ReplicaError, StorageError):
        return True  # there is nothing to tell again

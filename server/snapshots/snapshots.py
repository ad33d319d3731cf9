"""Copies metadata, committed offsets and schemas to the object store, again and again, as far as they have changed.

The controller copies the metadata; committed offsets and schemas are copied by who leads their partitions; and each
node notes where the logs end that it leads. Each snapshot is changed by compare-and-swap (`ottla.tiers.snapshot`): a
controller lists the metadata store after it knew what was there, so what an earlier one has listed never replaces it,
and leaders are ranked by their epochs. Each pass begins with the question whether another cluster was restored from the
objects, which is left alone then. None of this is waited for by anybody: a slow object store delays the next copy.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.coordinator.group.config import OFFSETS_TOPIC
from ottla.metadata import keys
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.metadata.snapshot import encode_snapshot
from ottla.metastore.errors import MetadataError
from ottla.replica.errors import ReplicaError
from ottla.runtime.time_slice import TimeSlice
from ottla.server.snapshots.contents import committed_offsets, whole_log
from ottla.storage.errors import StorageError
from ottla.tiers.errors import FencedUploadError, TierError
from ottla.tiers.names import SnapshotNames
from ottla.tiers.offload import in_a_thread
from ottla.tiers.snapshot import SnapshotFile

if TYPE_CHECKING:
    from ottla.coordinator.coordinators import Coordinators
    from ottla.metadata.controller import Controller
    from ottla.metastore.store import MetadataStore
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition
    from ottla.replica.remote.remote_storage import RemoteStorage
    from ottla.storage.clock import Clock

__all__ = ["SCHEMAS_TOPIC", "Snapshots"]

SCHEMAS_TOPIC: Final = "_schemas"
#: Somebody else leads by now.
_PASSING: Final = (FencedUploadError,)


class Coordinating(Protocol):
    """The broker, which has coordinators once it runs."""

    @property
    def coordinators(self) -> Coordinators: ...


class Snapshots:
    """One for a node with an object store. `run` is its life."""

    def __init__(
        self,
        remote: RemoteStorage,
        controller: Controller,
        store: MetadataStore,
        manager: ReplicaManager,
        coordinating: Coordinating,
        clock: Clock,
        *,
        interval_ms: int,
    ) -> None:
        self._remote = remote
        self._controller = controller
        self._store = store
        self._manager = manager
        self._coordinating = coordinating
        self._clock = clock
        self._interval_ms = interval_ms
        self._files: dict[str, SnapshotFile] = {}
        self._listed = -1
        self._copied_log: tuple[int, int, int] | None = None

    async def begin(self) -> None:
        """Learn how often this cluster was restored from its objects. Raises MetadataError."""
        entry = await self._store.get(keys.REMOTE_GENERATION)
        self._remote.begin(0 if entry is None else int(keys.decode(entry.value)))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(self._interval_ms / 1000)
            await self.copy_all()

    async def copy_all(self) -> None:
        """One pass. What fails is logged once, and tried again in the next."""
        names = SnapshotNames(self._controller.image.cluster_id)
        if not await self._try("the cluster", self._remote.require_ours):
            return
        if self._controller.image.controller_id == self._controller.node_id:
            await self._try("the metadata", partial(self._copy_metadata, names))
        for partition in self._led(OFFSETS_TOPIC):
            await self._try(f"{OFFSETS_TOPIC}-{partition.index}", partial(self._copy_offsets, names, partition))
        for partition in self._led(SCHEMAS_TOPIC):
            if partition.index == 0:
                await self._try(SCHEMAS_TOPIC, partial(self._copy_schemas, names, partition))
        await self._try("the ends of logs", partial(self._copy_ends, names))

    async def _try(self, what: str, copy: Callable[[], Awaitable[object]]) -> bool:
        """Whether it came through."""
        name = f"the snapshot of {what}"
        try:
            await copy()
        except _PASSING:
            return False
        except (TierError, MetadataError, ReplicaError, StorageError, OSError) as error:
            self._remote.failures.failed(name, "is not copied", error)
            return False
        self._remote.failures.well(name, has_asked=False)
        return True

    def _led(self, topic: str) -> Iterator[Partition]:
        """The partitions of a topic that this node leads."""
        image = self._controller.image.topic(topic)
        if image is not None:
            for number in range(len(image.partitions)):
                try:
                    held = self._manager.get_partition(image.topic_id, number)
                except (ReplicaError, StorageError):
                    continue
                if held.is_leader:
                    yield held

    async def _write(self, name: str, rank: int, collect: Callable[[], Awaitable[bytes]]) -> bool:
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = SnapshotFile(self._remote.store, name)
        return await file.write(self._remote.generation, rank, self._clock.time_ms(), collect)

    async def _copy_metadata(self, names: SnapshotNames) -> None:
        revision = self._controller.image.revision
        if revision == self._listed:
            return

        async def collect() -> bytes:
            listing = await self._store.list("")
            return await in_a_thread(encode_snapshot, listing.entries)

        await self._write(names.metadata, 0, collect)
        self._listed = revision

    async def _copy_offsets(self, names: SnapshotNames, partition: Partition) -> None:
        epoch = partition.leader_epoch
        shard = next(
            (it for it in self._coordinating.coordinators.loaded_groups() if it.partition == partition.index), None
        )
        if shard is None:
            return

        async def collect() -> bytes:
            content = await committed_offsets(shard.offsets)
            if not (partition.is_leader and partition.leader_epoch == epoch):
                raise FencedUploadError(f"{partition!r} is not led in epoch {epoch} any more")
            return content

        await self._write(names.offsets(partition.index), epoch, collect)

    async def _copy_schemas(self, names: SnapshotNames, partition: Partition) -> None:
        epoch, log = partition.leader_epoch, partition.log
        state = epoch, log.log_start_offset, log.high_watermark
        if state == self._copied_log:
            return
        await self._write(names.schemas, epoch, partial(whole_log, log, log.high_watermark))
        self._copied_log = state

    async def _copy_ends(self, names: SnapshotNames) -> None:
        ends: dict[str, dict[int, int]] = {}
        time_slice = TimeSlice()
        for held in list(self._manager.partitions()):
            if time_slice.is_over:
                await time_slice.maybe_yield()
            if held.is_leader and held.log.log_end_offset and held.topic not in INTERNAL_TOPICS:
                ends.setdefault(held.topic_id.hex, {})[held.index] = held.log.log_end_offset

        async def collect() -> bytes:
            return await in_a_thread(lambda: json.dumps(ends, sort_keys=True).encode())

        if ends:
            await self._write(names.ends(self._controller.node_id), 0, collect)

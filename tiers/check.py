"""The search for damage in the object store: whether all objects of a manifest exist, and have their checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.records.crc import value as crc_of
from ottla.tiers.errors import CorruptObjectError, ObjectMissingError, UnknownFormatError
from ottla.tiers.listing import list_manifests
from ottla.tiers.manifest import Manifest
from ottla.tiers.offload import Offload, in_a_thread
from ottla.tiers.parallel import in_parallel
from ottla.tiers.partition_index import PartitionIndex, Run

if TYPE_CHECKING:
    from ottla.tiers.manifest import RemoteSegment
    from ottla.tiers.names import TopicNames
    from ottla.tiers.object_store import Content, ObjectStore

__all__ = ["CheckedPartition", "CheckedTopic", "Damage", "check_partition", "check_topic"]

_DAMAGES: Final = (CorruptObjectError, ObjectMissingError, UnknownFormatError)
_READ_BYTES: Final = 4 * 1_048_576
_MOST: Final = 1000


class Damage(NamedTuple):
    """Offsets [first, last] of a partition that cannot be read out of the object store, and why.

    If its manifest is damaged, nothing is known of them: both are -1.
    """

    partition: int
    first_offset: int
    last_offset: int
    text: str


class CheckedPartition(NamedTuple):
    """The counts of one partition's check, and its damage by offset."""

    records: int
    segments: int
    size_bytes: int
    damage: list[Damage]


class CheckedTopic(NamedTuple):
    """All of a topic. `strangers` are objects that lie among the manifests and are none."""

    partitions: list[CheckedPartition]
    strangers: list[str]

    @property
    def damage(self) -> list[Damage]:
        return [damage for partition in self.partitions for damage in partition.damage]


_NOTHING: Final = CheckedPartition(0, 0, 0, [])


async def check_topic(
    store: ObjectStore,
    names: TopicNames,
    *,
    reads_all: bool = False,
    checked: Callable[[CheckedPartition], None] = lambda _: None,
    offload: Offload = in_a_thread,
) -> CheckedTopic:
    """Check all partitions that have a manifest; `checked` is called after each. Raises as `check_partition` does.

    A topic whose deletion has begun has no damage.
    """
    manifests = await list_manifests(store, names)

    async def check(partition: int) -> CheckedPartition:
        found = await check_partition(store, names, partition, reads_all=reads_all, offload=offload)
        checked(found)
        return found

    found = CheckedTopic(await in_parallel(check, manifests.partitions), manifests.strangers)
    if found.damage and await _is_being_deleted(store, names):
        return CheckedTopic([], [])
    return found


async def check_partition(
    store: ObjectStore, names: TopicNames, partition: int, *, reads_all: bool = False, offload: Offload = in_a_thread
) -> CheckedPartition:
    """Check one partition; nothing is damaged if it has no manifest.

    Indexes are read, and with `reads_all` all batches; otherwise each stretch of a part is asked for its last byte. It
    ends after the segment in which the thousandth place was found. Brokers may delete meanwhile: what the manifest does
    not name any more is no damage. Raises ObjectStoreUnavailableError or ObjectStoreRefusedError if the store does not
    answer: that is no damage, either.
    """
    try:
        manifest = await _manifest(store, names, partition, offload)
        if manifest is None:
            return _NOTHING
        check = _Check(store, names, partition, reads_all=reads_all, offload=offload)
        found: list[Damage] = []
        for segment in manifest:
            found += await check.segment(segment)
            if len(found) >= _MOST:
                break
        if found:
            present = await _manifest(store, names, partition, offload)
            found = [] if present is None else [it for it in found if present.find(it.last_offset) is not None]
    except _DAMAGES as error:
        return _NOTHING._replace(damage=[Damage(partition, -1, -1, str(error))])
    records = manifest.end_offset - manifest.log_start_offset
    return CheckedPartition(records, len(manifest), manifest.size_bytes, found)


async def _manifest(store: ObjectStore, names: TopicNames, partition: int, offload: Offload) -> Manifest | None:
    try:
        content = (await store.get(names.manifest(partition))).content
    except ObjectMissingError:
        return None
    return await offload(Manifest.from_bytes, content, names.topic_id, partition)


async def _is_being_deleted(store: ObjectStore, names: TopicNames) -> bool:
    """Objects of a topic go one after the other, and its manifests last."""
    try:
        await store.get(names.deletion_note)
    except ObjectMissingError:
        return not (await list_manifests(store, names)).partitions
    return True


class _Check:
    """The check of one partition."""

    def __init__(
        self, store: ObjectStore, names: TopicNames, partition: int, *, reads_all: bool, offload: Offload
    ) -> None:
        self._store = store
        self._names = names
        self._partition = partition
        self._reads_all = reads_all
        self._offload = offload

    async def segment(self, segment: RemoteSegment) -> list[Damage]:
        """The damage of one segment."""
        try:
            index = await self._index(segment)
        except _DAMAGES as error:
            return [Damage(self._partition, segment.base_offset, segment.last_offset, str(error))]
        found: list[Damage] = []
        for part, runs in groupby(index, key=lambda run: run.part):
            name = self._names.part(segment.upload, part)
            for piece in _pieces(list(runs)):
                found += await self._piece(name, piece)
        return found

    async def _index(self, segment: RemoteSegment) -> PartitionIndex:
        name = self._names.index(segment.upload)
        content = bytes(await self._store.get_range(name, segment.index_position, segment.index_length))
        if len(content) != segment.index_length or await self._offload(crc_of, content) != segment.index_crc:
            raise CorruptObjectError(f"{name} is not what was uploaded")
        topic_id = self._names.topic_id
        return await self._offload(
            PartitionIndex, content, topic_id, self._partition, segment.base_offset, segment.last_offset
        )

    async def _piece(self, name: str, runs: Sequence[Run]) -> list[Damage]:
        """The damage of runs that lie next to each other in a part."""
        start, end = runs[0].position, runs[-1].end_position
        try:
            if self._reads_all:
                content = await self._store.get_range(name, start, end - start)
                bad = await self._offload(_damaged_runs, content, runs)
            else:
                bad = [] if len(await self._store.get_range(name, end - 1, 1)) == 1 else list(runs)
        except ObjectMissingError as error:
            return [self._damage(run, str(error)) for run in runs]
        return [self._damage(run, f"{name} is not what was uploaded at {run.position}") for run in bad]

    def _damage(self, run: Run, text: str) -> Damage:
        return Damage(self._partition, run.base_offset, run.last_offset, text)


def _pieces(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Runs of one part, in pieces of 4 MiB or a single longer one."""
    piece: list[Run] = []
    for run in runs:
        if piece and run.end_position - piece[0].position > _READ_BYTES:
            yield piece
            piece = []
        piece.append(run)
    if piece:
        yield piece


def _damaged_runs(content: Content, runs: Sequence[Run]) -> list[Run]:
    """The runs whose checksum is wrong. Blocks."""
    start = runs[0].position
    view = memoryview(content)
    return [run for run in runs if crc_of(view[run.position - start : run.end_position - start]) != run.crc]

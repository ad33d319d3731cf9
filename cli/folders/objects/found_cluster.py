"""What an object store has of a cluster: snapshots, topics and manifests. Nothing is changed by looking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.metadata.image import MetadataImage
from ottla.metadata.snapshot import RestoredTopic, SnapshotContent, SnapshotError, decode_snapshot
from ottla.replica.tiered.rules import remote_rules
from ottla.settings.config import BrokerConfig
from ottla.tiers.errors import CorruptObjectError
from ottla.tiers.listing import find_topics, list_manifests
from ottla.tiers.manifest_file import ManifestFile
from ottla.tiers.names import SnapshotNames, TopicNames
from ottla.tiers.parallel import in_parallel
from ottla.tiers.snapshot import Snapshot, SnapshotFile

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
    from ottla.tiers.object_store import ObjectStore

__all__ = ["FoundCluster", "find_cluster"]

_TIERED: Final = {"remote.storage.enable": "true"}
_UNKNOWN_PRODUCER_IDS: Final = 1_000_000_000
"""Where ids of producers begin if nothing says how many were given."""

Place = tuple[UUID, int]


class FoundCluster(NamedTuple):
    """`files` are the manifests of tiered partitions, also of those that have none; `ends` where logs were last seen to
    end. `last_written_ms` is when the newest snapshot was written, -1 without any. `deleted` are topics whose objects
    were being deleted, and `namesakes` have the name of another one: both are left out, and their objects stay.
    """

    cluster_id: str
    metadata: SnapshotFile
    snapshot: Snapshot | None
    content: SnapshotContent
    topics: list[RestoredTopic]
    files: dict[Place, ManifestFile]
    offsets: dict[int, Snapshot]
    schemas: Snapshot | None
    ends: dict[Place, int]
    last_written_ms: int
    deleted: list[str]
    namesakes: list[RestoredTopic]

    @property
    def generation(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.generation

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch that anything tells of."""
        epochs = [file.manifest.leader_epoch for file in self.files.values() if file.manifest is not None]
        epochs += [it.rank for it in (self.schemas, *self.offsets.values()) if it is not None]
        states = [state.leader_epoch for topic in self.content.image.topics.values() for state in topic.partitions]
        return max((*epochs, *states), default=0)


async def find_cluster(store: ObjectStore, cluster_id: str) -> FoundCluster:
    """Read all of it, except records. Raises TierError if it cannot be read, or is damaged."""
    names = SnapshotNames(cluster_id)
    metadata = SnapshotFile(store, names.metadata)
    snapshot = await metadata.read()
    content = _decoded(snapshot, names.metadata)
    deleted = {name.removeprefix(f"{cluster_id}/deleted/") for name in await _names(store, f"{cluster_id}/deleted/")}
    known = {topic.topic_id.hex: topic for topic in content.image.topics.values()}
    folders = {it.topic_id.hex: it async for it in find_topics(store, cluster_id)}
    topics: list[RestoredTopic] = []
    for topic_id in sorted({*known, *folders} - deleted):
        topic = await _topic(store, known.get(topic_id), folders.get(topic_id))
        if topic is not None:
            topics.append(topic)
    namesakes = _namesakes(topics)
    topics = [topic for topic in topics if topic not in namesakes]
    tiered = [
        (TopicNames(cluster_id, topic.name, topic.topic_id), number)
        for topic in topics
        if remote_rules(BrokerConfig().topic_config(topic.configs)) is not None
        for number in range(topic.partitions)
    ]
    files = dict(await in_parallel(lambda it: _manifest(store, *it), tiered))
    offsets = {
        number: found
        for name in await _names(store, names.all_offsets)
        if (number := names.partition_of(name)) is not None
        and (found := await SnapshotFile(store, name).read()) is not None
    }
    schemas = await SnapshotFile(store, names.schemas).read()
    ends, ends_ms = await _ends(store, await _names(store, names.all_ends))
    gone = sorted(topic.name for topic_id, topic in known.items() if topic_id in deleted)
    written_ms = [it.written_at_ms for it in (snapshot, schemas, *offsets.values()) if it is not None]
    written_ms += ends_ms
    return FoundCluster(
        cluster_id,
        metadata,
        snapshot,
        content,
        topics,
        files,
        offsets,
        schemas,
        ends,
        max(written_ms, default=-1),
        gone,
        namesakes,
    )


def _decoded(snapshot: Snapshot | None, name: str) -> SnapshotContent:
    """The metadata in a snapshot; nothing if there is none. Raises CorruptObjectError."""
    if snapshot is None:
        return SnapshotContent(MetadataImage(), [], _UNKNOWN_PRODUCER_IDS)
    try:
        return decode_snapshot(snapshot.content)
    except SnapshotError as error:
        raise CorruptObjectError(f"{name}: {error}") from error


async def _topic(store: ObjectStore, there: TopicImage | None, folder: TopicNames | None) -> RestoredTopic | None:
    """A topic as the snapshot or its folder has it; None if there is nothing of it."""
    listed = [] if folder is None else (await list_manifests(store, folder)).partitions
    if there is not None:
        count = max([len(there.partitions), *(number + 1 for number in listed)])
        return RestoredTopic(there.name, there.topic_id, count, there.configs)
    if folder is None or not listed:
        return None
    return RestoredTopic(folder.topic, folder.topic_id, max(listed) + 1, _TIERED, is_guessed=True)


async def _names(store: ObjectStore, prefix: str) -> list[str]:
    names: list[str] = []
    while page := await store.find(prefix, names[-1] if names else ""):
        names += [info.name for info in page]
    return names


async def _manifest(store: ObjectStore, names: TopicNames, partition: int) -> tuple[Place, ManifestFile]:
    file = ManifestFile(store, names.manifest(partition), names.topic_id, partition)
    await file.refresh()
    return (names.topic_id, partition), file


async def _ends(store: ObjectStore, names: Sequence[str]) -> tuple[dict[Place, int], list[int]]:
    """Where logs were seen to end, by whoever led them, the furthest that anybody has seen; and when that was noted."""
    ends: dict[Place, int] = {}
    written_ms = []
    for name in names:
        snapshot = await SnapshotFile(store, name).read()
        if snapshot is None:
            continue
        written_ms.append(snapshot.written_at_ms)
        try:
            for topic_id, partitions in json.loads(snapshot.content).items():
                for number, end_offset in partitions.items():
                    place = UUID(topic_id), int(number)
                    ends[place] = max(ends.get(place, 0), int(end_offset))
        except (ValueError, AttributeError, TypeError) as error:
            raise CorruptObjectError(f"{name} cannot be read: {error!r}") from error
    return ends, written_ms


def _namesakes(topics: Sequence[RestoredTopic]) -> list[RestoredTopic]:
    """Guessed topics with the name of another one, which was made anew or deleted: a name is one topic's."""
    taken = {topic.name for topic in topics if not topic.is_guessed}
    found = []
    for topic in topics:
        if topic.is_guessed and topic.name in taken:
            found.append(topic)
        taken.add(topic.name)
    return found

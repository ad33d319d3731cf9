"""The cluster's metadata as it is kept beside the objects of tiered topics, and the metadata of a cluster made of it.

What is kept are topics with their settings, the settings of all brokers, of groups and of client metrics, quotas, ACLs
and features. What would be a secret is not: SCRAM credentials, delegation tokens, and settings of the type password.
Who may read a bucket may not log in by that. Settings of single brokers are those of machines that may be gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata import keys
from ottla.metadata.features import DEFAULT_FEATURES
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.image_delta import evolve
from ottla.metastore.store import KeyValue, Operation, Put
from ottla.settings.config import BROKER_SETTINGS

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "RestoredTopic",
    "SnapshotContent",
    "SnapshotError",
    "decode_snapshot",
    "encode_snapshot",
    "restored_metadata",
]

_KEPT: Final = (
    keys.CLUSTER_ID,
    keys.FEATURES,
    keys.TOPICS,
    keys.PARTITIONS,
    keys.CONFIGS,
    keys.QUOTAS,
    keys.ACLS,
    keys.STARTS,
    keys.PRODUCER_IDS,
)
_AS_THEY_WERE: Final = (keys.FEATURES, keys.CONFIGS, keys.QUOTAS, keys.ACLS)
_OF_BROKERS: Final = f"{keys.CONFIGS}broker/"
_UNSEEN_PRODUCER_IDS: Final = 1_000_000
"""How many ids may have been given to producers since the snapshot."""


class SnapshotError(Exception):
    """A snapshot has another form than this release knows."""


class SnapshotContent(NamedTuple):
    """The metadata at that time, what goes into a new store as it was, and the first producer id nobody had."""

    image: MetadataImage
    kept: list[Operation]
    producer_ids: int


class RestoredTopic(NamedTuple):
    """A topic as it will be; it is guessed if only its objects tell of it."""

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str]
    is_guessed: bool = False


def encode_snapshot(entries: Iterable[KeyValue]) -> bytes:
    """What is kept of the metadata store's keys."""
    kept = {entry.key: value for entry in entries if (value := _kept(entry)) is not None}
    return json.dumps({"entries": kept}, sort_keys=True, separators=(",", ":")).encode()


def decode_snapshot(content: bytes) -> SnapshotContent:
    """What `encode_snapshot` kept. Raises SnapshotError."""
    try:
        found = json.loads(content)["entries"]
        entries = [
            KeyValue(key, value.encode("utf-8", "surrogatepass"), revision, revision)
            for revision, (key, value) in enumerate(sorted(found.items()), 1)
        ]
        image = evolve(MetadataImage(), len(entries), entries, ()).after
        producer_ids = max((int(keys.decode(it.value)) for it in entries if it.key == keys.PRODUCER_IDS), default=0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"the metadata cannot be read: {error!r}") from error
    kept: list[Operation] = [Put(it.key, it.value) for it in entries if it.key.startswith(_AS_THEY_WERE)]
    return SnapshotContent(image, kept, producer_ids)


def restored_metadata(
    cluster_id: str,
    topics: Sequence[RestoredTopic],
    kept: Sequence[Operation],
    *,
    node_id: int,
    leader_epoch: int,
    generation: int,
    producer_ids: int,
) -> list[Operation]:
    """The writes into an empty store: one node has and leads everything, in an epoch that no leader before it had."""
    operations: list[Operation] = [
        Put(keys.CLUSTER_ID, keys.encode(cluster_id)),
        Put(keys.PRODUCER_IDS, keys.encode(producer_ids + _UNSEEN_PRODUCER_IDS)),
        Put(keys.REMOTE_GENERATION, keys.encode(generation)),
        *kept,
    ]
    if not any(isinstance(each, Put) and each.key.startswith(keys.FEATURES) for each in kept):
        operations += [Put(keys.feature(name), keys.encode(level)) for name, level in DEFAULT_FEATURES.items()]
    state = PartitionState(node_id, (node_id,), (node_id,), leader_epoch, leader_epoch)
    for topic in topics:
        replicas = [(node_id,)] * topic.partitions
        operations.append(Put(keys.topic(topic.name), keys.encode_topic(topic.topic_id, replicas, topic.configs)))
        operations += [
            Put(keys.partition(topic.topic_id, number), keys.encode_partition(state, {}))
            for number in range(topic.partitions)
        ]
    return operations


def _kept(entry: KeyValue) -> str | None:
    if not entry.key.startswith(_KEPT):
        return None
    if entry.key.startswith(_OF_BROKERS):
        if entry.key != _OF_BROKERS:
            return None
        public = {name: value for name, value in keys.decode(entry.value).items() if _is_public(name)}
        return keys.encode(public).decode("utf-8", "surrogatepass")
    return entry.value.decode("utf-8", "surrogatepass")


def _is_public(name: str) -> bool:
    setting = BROKER_SETTINGS.get(name)
    return setting is not None and not setting.sensitive

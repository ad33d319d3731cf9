"""Writes before a node follows the metadata: a new cluster's first keys, and each start of a node.

Kafka's counterpart of the former is org.apache.kafka.metadata.bootstrap.BootstrapMetadata.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from uuid import UUID

from ottla.metadata import keys
from ottla.metadata.changes.transactions import replace_number
from ottla.metadata.features import DEFAULT_FEATURES
from ottla.metastore.store import Compare, MetadataStore, Put


async def found_cluster(store: MetadataStore, new_uuid: Callable[[], UUID]) -> None:
    """Write what a new cluster begins with, unless there is a cluster."""
    puts = [Put(keys.CLUSTER_ID, keys.encode(_base64(random_id(new_uuid))))]
    puts += [Put(keys.feature(name), keys.encode(level)) for name, level in DEFAULT_FEATURES.items()]
    await store.commit([Compare(keys.CLUSTER_ID, 0)], puts)


async def count_start(store: MetadataStore, node_id: int, note_start: Callable[[int], None]) -> None:
    """Count this start: in one key, however many partitions there are, and durably before anything is appended in
    the new epochs. `note_start` is told the number before that is committed.

    A node that is registered but was never counted was last run by a release that did not have the key.
    """
    is_registered = await store.get(keys.broker(node_id)) is not None

    def next_start(before: int | None) -> int:
        count = int(is_registered) if before is None else before + 1
        note_start(count)
        return count

    await replace_number(store, keys.starts(node_id), next_start)


def random_id(new_uuid: Callable[[], UUID]) -> UUID:
    """A random id whose text does not begin with '-', which tools would take for an option."""
    while True:
        found = new_uuid()
        if not _base64(found).startswith("-") and found.int > 1:
            return found


def _base64(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")

"""The cluster's metadata as `ottla fsck` reads it: from `cluster.sqlite`, or from etcd."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli import CommandError
from ottla.storage.disk import RealDisk
from ottla.storage.node_dir import read_note

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metastore.store import MetadataStore


def check_cluster(node_dir: Path, cluster_id: str, *, may_be_none: bool) -> None:
    """With another cluster's metadata every topic would be unknown. `may_be_none`: the folder need not say."""
    own = (read_note(RealDisk(), str(node_dir)) or {}).get("cluster_id")
    if own != cluster_id and not (own is None and may_be_none):
        raise CommandError(
            f"{node_dir} belongs to {f'the cluster {own}' if own else 'no cluster yet'}, and the metadata is that of "
            f"{cluster_id}"
        )


async def known_topics(data_dir: Path, metadata: str | None) -> tuple[str, dict[UUID, list[tuple[int, ...]]]]:
    """The id of the cluster, and of each of its topics the replicas of each partition."""
    from ottla.metadata import keys
    from ottla.metadata.move import refuse_moved
    from ottla.metastore.errors import StoreUnavailableError

    place, store = await open_metadata(data_dir, metadata)
    try:
        await refuse_moved(store)
        cluster = await store.get(keys.CLUSTER_ID)
        if cluster is None:
            raise CommandError(f"{place} holds no cluster: without its metadata every topic would be unknown")
        described = (keys.decode_topic(item.value) for item in (await store.list(keys.TOPICS)).entries)
        topics = {topic_id: replicas for topic_id, replicas, _ in described}
        for item in (await store.list(keys.PARTITIONS)).entries:
            topic_id, partition = keys.parse_partition(item.key)
            if partition < len(topics.get(topic_id, ())):
                topics[topic_id][partition] = keys.decode_partition(item.value, {}).replicas
        return keys.decode(cluster.value), topics
    except StoreUnavailableError as error:
        raise CommandError(str(error)) from None
    finally:
        await store.close()


async def open_metadata(data_dir: Path, metadata: str | None) -> tuple[str, MetadataStore]:
    from ottla.metadata.open_store import SQLITE_FILE, open_etcd
    from ottla.metastore.address import parse_metadata_address
    from ottla.metastore.errors import StoreUnavailableError
    from ottla.metastore.sqlite import open_sqlite_store
    from ottla.settings.sources import load
    from ottla.storage.clock import SystemClock

    try:
        address = None if metadata is None else parse_metadata_address(metadata)
        if address is not None:
            return str(metadata), await open_etcd(address, load(environment=os.environ))
    except (ValueError, StoreUnavailableError) as error:
        raise CommandError(f"--metadata {metadata}: {error}") from None
    path = data_dir / SQLITE_FILE
    if not path.exists():
        raise CommandError(f"{path} is missing: without the cluster's metadata every topic would be unknown")
    try:
        return str(path), await open_sqlite_store(path, SystemClock().time_ms)
    except StoreUnavailableError as error:
        raise CommandError(str(error)) from None

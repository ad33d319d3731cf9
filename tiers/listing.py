"""Listings of an object store: clusters, their topics, and the partitions that have a manifest.

A listing may lack objects that were written just now, so nothing is deleted because of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.storage.format.topic_file import FOLDER_NAME_CHARACTERS
from ottla.tiers.names import TOPICS_FOLDER, SnapshotNames, TopicNames

if TYPE_CHECKING:
    from ottla.tiers.object_store import ObjectStore

__all__ = ["Manifests", "find_clusters", "find_topics", "list_manifests"]

#: Comes after every character that a name may have.
_LAST: Final = "~"


class Manifests(NamedTuple):
    """The partitions of a topic that have a manifest, and the names of objects that lie there and are none."""

    partitions: list[int]
    strangers: list[str]


async def find_clusters(store: ObjectStore) -> list[str]:
    """The ids of the clusters that have topics or snapshots. Raises TierError if the store cannot be asked."""
    return sorted([name async for name in _folders(store, "") if await _is_cluster(store, name)])


async def _is_cluster(store: ObjectStore, name: str) -> bool:
    return bool(await store.find(f"{name}/{TOPICS_FOLDER}") or await store.find(SnapshotNames(name).folder))


async def find_topics(store: ObjectStore, cluster_id: str, topic: str | None = None) -> AsyncIterator[TopicNames]:
    """The topics of a cluster that have objects, or all that have one name; by name. Raises as `find_clusters` does."""
    beginning = "" if topic is None else f"{topic[:FOLDER_NAME_CHARACTERS]}."
    async for name in _folders(store, f"{cluster_id}/{TOPICS_FOLDER}", beginning):
        names = TopicNames.of_folder(cluster_id, name)
        if names is not None and (topic is None or f"{names.topic}." == beginning):
            yield names


async def list_manifests(store: ObjectStore, names: TopicNames) -> Manifests:
    """The manifests of a topic. Raises as `find_clusters` does."""
    found = Manifests([], [])
    after = ""
    while page := await store.find(names.manifests, after):
        for info in page:
            partition = names.partition_of(info.name)
            if partition is None:
                found.strangers.append(info.name)
            else:
                found.partitions.append(partition)
        after = page[-1].name
    return found


async def _folders(store: ObjectStore, prefix: str, beginning: str = "") -> AsyncIterator[str]:
    """The folders right below a prefix whose names have a beginning.

    A request for each at most: what is in a folder is passed over.
    """
    after, last = (f"{prefix}{beginning}" if beginning else ""), ""
    while page := await store.find(prefix, after):
        for info in page:
            if info.name <= after:
                continue
            name, slash, _ = info.name.removeprefix(prefix).partition("/")
            if not name.startswith(beginning):
                return
            if slash and name != last:
                last = name
                yield name
            after = max(f"{prefix}{name}/{_LAST}", info.name) if slash else info.name

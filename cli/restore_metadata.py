"""`ottla restore --metadata-from-data`: a new cluster.sqlite from what lies beside the topics' records."""

from __future__ import annotations

import argparse
import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

import trio

from ottla.cli import CommandError
from ottla.cli.backup.snapshot import METADATA_FILE, node_dirs
from ottla.cli.options import counted
from ottla.storage.errors import DataDirLockedError, StorageError

if TYPE_CHECKING:
    from ottla.server.metadata.store import Operation
    from ottla.storage.found_topics import FoundTopics

_NEVER_MS: Final = 1 << 40
_UNSEEN_PRODUCER_IDS: Final = 1_000_000
"""How many ids may have been given to producers that no log remembers."""


class _Topic(NamedTuple):
    """A topic as it will be written; it is guessed if nothing but its folder tells of it."""

    topic_id: UUID
    replicas: list[tuple[int, ...]]
    configs: dict[str, str]
    is_guessed: bool


def run(arguments: argparse.Namespace) -> int:
    """Rebuild the file. Raises CommandError if it exists, or if there is nothing to rebuild it from."""
    data_dir: Path = arguments.data_dir
    path = data_dir / METADATA_FILE
    if path.exists():
        raise CommandError(f"{path} exists: move it away to have it recreated")
    nodes = [int(node.name.removeprefix("node-")) for node in node_dirs(data_dir)]
    if not nodes:
        raise CommandError(f"{data_dir} is not a data folder: there is no node-<id> in it")
    try:
        topics = trio.run(_rebuild, data_dir, nodes)
    except* DataDirLockedError:
        raise CommandError(f"a broker is running in {data_dir}: stop it first") from None
    except* StorageError as group:
        raise CommandError(str(group.exceptions[0])) from group
    guessed = sorted(name for name, topic in topics.items() if topic.is_guessed)
    if arguments.json:
        print(json.dumps({"topics": sorted(topics), "guessed": guessed}))
        return 0
    found = counted(len(topics), "topic")
    print(f"{path} has {found} again; empty ones, quotas, users and brokers' settings are not in it")
    for name in guessed:
        print(f"guessed: {name}, with {counted(len(topics[name].replicas), 'partition')}; its settings are not known")
    return 0


async def _rebuild(data_dir: Path, nodes: list[int]) -> dict[str, _Topic]:
    from ottla.storage.clock import SystemClock
    from ottla.storage.config import StorageConfig
    from ottla.storage.disk import RealDisk
    from ottla.storage.found_topics import find_topics
    from ottla.storage.log_manager import LogManager

    found = {}
    cluster_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    for node_id in nodes:
        config = StorageConfig(cleaner_backoff_ms=_NEVER_MS)
        manager = LogManager(RealDisk(), str(data_dir), config, SystemClock(), node_id=node_id)
        async with manager.run():
            if RealDisk().exists(manager.shared_store_directory):
                raise CommandError("ottla.store.layout=shared: the files do not say what the topics are called")
            cluster_id = manager.node_dir.cluster_id or cluster_id
            found[node_id] = await find_topics(manager)
    topics = _merge(found)
    await _write(data_dir / METADATA_FILE, cluster_id, topics, found)
    return topics


def _merge(found: dict[int, FoundTopics]) -> dict[str, _Topic]:
    from ottla.server.metadata.keys import decode_described_topic

    topics: dict[str, _Topic] = {}
    for node_id, of_node in found.items():
        for topic in of_node.topics:
            try:
                assert topic.description is not None
                name, topic_id, replicas, configs = decode_described_topic(topic.description)
                topics[name] = _Topic(topic_id, replicas, configs, is_guessed=False)
            except (AssertionError, ValueError, KeyError, TypeError):
                known = topics.get(topic.name)
                if known is None or known.is_guessed:
                    count = max(max(topic.partitions) + 1, len(known.replicas) if known is not None else 0)
                    topics[topic.name] = _Topic(topic.topic_id, [(node_id,)] * count, {}, is_guessed=True)
    return topics


async def _write(path: Path, cluster_id: str, topics: dict[str, _Topic], found: dict[int, FoundTopics]) -> None:
    """Beside first, so that half a file never looks like a whole one."""
    from ottla.server.metadata import keys
    from ottla.server.metadata.features import DEFAULT_FEATURES
    from ottla.server.metadata.sqlite import open_sqlite_store
    from ottla.server.metadata.store import Put
    from ottla.storage.clock import SystemClock

    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    # Leaders start in epochs, and producers with ids, that no record has.
    starts = max(of_node.largest_epoch for of_node in found.values()) + 1
    producer_ids = max(of_node.largest_producer_id for of_node in found.values()) + 1 + _UNSEEN_PRODUCER_IDS
    operations: list[Operation] = [
        Put(keys.CLUSTER_ID, keys.encode(cluster_id)),
        Put(keys.PRODUCER_IDS, keys.encode(producer_ids)),
    ]
    operations += [Put(keys.feature(name), keys.encode(level)) for name, level in DEFAULT_FEATURES.items()]
    operations += [Put(keys.starts(node_id), keys.encode(starts)) for node_id in found]
    operations += [
        Put(keys.topic(name), keys.encode_topic(topic.topic_id, topic.replicas, topic.configs))
        for name, topic in topics.items()
    ]
    store = await open_sqlite_store(beside, SystemClock().time_ms)
    try:
        await store.commit([], operations)
    finally:
        await store.close()
    beside.rename(path)

"""`ottla restore --from URL`: a cluster out of the objects of its tiered topics, and the snapshots beside them."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import trio

from ottla.cli import CommandError
from ottla.cli.folders.backup.archive import restoring
from ottla.cli.folders.backup.errors import BackupError
from ottla.cli.folders.backup.snapshot import METADATA_FILE
from ottla.cli.folders.nodes import serve_command
from ottla.cli.folders.objects.found_cluster import FoundCluster, find_cluster
from ottla.cli.folders.objects.new_folder import Restored, RestoredPartition, write_folder
from ottla.cli.folders.restore_metadata import write_metadata
from ottla.cli.options import counted
from ottla.cli.tiers.place import Place, asking, open_place, settings
from ottla.metadata import keys
from ottla.metadata.snapshot import restored_metadata
from ottla.metastore.errors import MetadataError
from ottla.storage.clock import SystemClock
from ottla.storage.errors import StorageError
from ottla.tiers.listing import find_clusters
from ottla.tiers.parallel import in_parallel

if TYPE_CHECKING:
    from ottla.tiers.manifest_file import ManifestFile

_NEW_EPOCHS: Final = 1_000_000
"""How far leader epochs go up. Should the old cluster still live, none of its leaders comes so far, and so none of them
changes a manifest any more.
"""
_NAMED: Final = 20


def run(arguments: argparse.Namespace) -> int:
    """Make the folder, and print what is in it and what is not. Raises CommandError."""
    config = settings(arguments.config, arguments.source)
    place = open_place(config)
    found = asking(place, _find, place, arguments.cluster_id)
    if not found.topics:
        raise CommandError(f"{place.url} has no topic of cluster {found.cluster_id}")
    generation = found.generation + 1
    leader_epoch = found.latest_epoch + _NEW_EPOCHS
    try:
        with restoring(arguments.data_dir) as beside:
            asking(place, _take_over, found, generation, leader_epoch)
            restored = trio.run(_write, beside, config.node_id, found, generation, leader_epoch)
    except* (OSError, StorageError, MetadataError, BackupError) as group:
        raise CommandError(str(group.exceptions[0])) from None
    command = f"{serve_command(arguments.data_dir, [config.node_id])} --set ottla.remote.url={place.url}"
    if arguments.json:
        print(json.dumps(_as_json(found, restored) | {"command": command}))
    else:
        _print(arguments.data_dir, found, restored, command)
    return 0


async def _find(place: Place, cluster_id: str | None) -> FoundCluster:
    if cluster_id is None:
        clusters = await find_clusters(place.store)
        if len(clusters) != 1:
            which = f": name one of {', '.join(clusters)} with --cluster-id" if clusters else ""
            raise CommandError(f"{place.url} has objects of {counted(len(clusters), 'cluster')}{which}")
        (cluster_id,) = clusters
    return await find_cluster(place.store, cluster_id)


async def _take_over(found: FoundCluster, generation: int, leader_epoch: int) -> None:
    """Shut the old cluster out. Raises TierError.

    Whatever ends this in the middle, no record is touched, and another restoration finds what this one has found.
    """
    content = {"entries": {keys.CLUSTER_ID: json.dumps(found.cluster_id)}}
    if found.snapshot is not None:
        content = json.loads(found.snapshot.content)
    # By this another restoration at the same time is told from this one.
    claim = json.dumps(content | {"restoration": uuid4().hex}).encode()
    await found.metadata.take_over(generation, SystemClock().time_ms(), claim)

    async def fence(file: ManifestFile) -> None:
        await file.change(lambda manifest: manifest.fenced(leader_epoch))

    await in_parallel(fence, found.files.values())


async def _write(data_dir: Path, node_id: int, found: FoundCluster, generation: int, leader_epoch: int) -> Restored:
    restored = await write_folder(data_dir, node_id, found, leader_epoch)
    operations = restored_metadata(
        found.cluster_id,
        found.topics,
        found.content.kept,
        node_id=node_id,
        leader_epoch=leader_epoch,
        generation=generation,
        producer_ids=found.content.producer_ids,
    )
    await write_metadata(data_dir / METADATA_FILE, operations)
    return restored


def _as_json(found: FoundCluster, restored: Restored) -> dict[str, Any]:
    return {
        "cluster_id": found.cluster_id,
        "snapshot_at_ms": None if found.last_written_ms < 0 else found.last_written_ms,
        "partitions": [each._asdict() for each in restored.partitions],
        "committed_offsets": restored.committed_offsets,
        "schema_records": restored.schema_records,
        "guessed": [topic.name for topic in found.topics if topic.is_guessed],
        "deleted": found.deleted,
        "namesakes": [{"topic": topic.name, "topic_id": str(topic.topic_id)} for topic in found.namesakes],
    }


def _print(data_dir: Path, found: FoundCluster, restored: Restored, command: str) -> None:
    print(f"{data_dir} is cluster {found.cluster_id}, as far as the object store has it")
    if found.last_written_ms < 0:
        print("missing: there is no snapshot of metadata, committed offsets and schemas; topics are guessed")
    else:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.last_written_ms / 1000))
        offsets = counted(restored.committed_offsets, "committed offset")
        schemas = counted(restored.schema_records, "schema record")
        print(f"metadata, {offsets} and {schemas} are as of {when}; what changed later is missing")
    empty = sorted({it.topic for it in restored.partitions} - {it.topic for it in restored.partitions if it.copied_end})
    for name in empty[:_NAMED]:
        print(f"missing: all records of {name}, which has none in the object store")
    short = [it for it in restored.partitions if it.copied_end and it.known_end > it.copied_end]
    for it in short[:_NAMED]:
        print(f"missing: {it.topic}-{it.partition} from offset {it.copied_end} on, to {it.known_end - 1} at least")
    for what, some in (("empty topics", empty), ("partitions whose end is missing", short)):
        if len(some) > _NAMED:
            print(f"missing: {len(some) - _NAMED} more {what}; --json names all")
    print("missing: whatever was written after that, users with SCRAM passwords, delegation tokens, open transactions")
    for topic in found.topics:
        if topic.is_guessed:
            print(f"guessed: {topic.name}, with {counted(topic.partitions, 'partition')}; its settings are not known")
    for topic in found.namesakes:
        print(f"left out: another topic {topic.name} with the id {topic.topic_id}; its objects stay")
    print(f"new records have offsets from {_first_new(restored.partitions)} on; every topic has one replica")
    print(f"start it with `{command}`; the cluster that wrote the objects can change none of them any more")


def _first_new(partitions: list[RestoredPartition]) -> int:
    return min((it.first_new for it in partitions), default=0)

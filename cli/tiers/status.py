"""`ottla tier status`: what is in the object store of each partition, and what of it is nowhere else."""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.cli.tiers.known_topics import KnownTopics, known_topics, told_url
from ottla.cli.tiers.place import Place, asking, find_wanted, missing_topic, open_place, settings
from ottla.client.offsets import TopicPartition
from ottla.tiers.errors import CorruptObjectError, ObjectMissingError, UnknownFormatError
from ottla.tiers.listing import list_manifests
from ottla.tiers.manifest import Manifest
from ottla.tiers.names import TopicNames
from ottla.tiers.offload import in_a_thread
from ottla.tiers.parallel import in_parallel

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD: Final = ("TOPIC", "PARTITION", "START", "END", "SEGMENTS", "SIZE")
_MORE: Final = ("LOCAL START", "ONLY REMOTE", "SIZE", "NOT COPIED")


class Status(NamedTuple):
    """A partition. None: it is not known, because no broker was asked, nobody leads, or the manifest is damaged.

    `only_remote_records` and `not_copied_records` count offsets. `in_cluster` is False for what a deleted topic has
    left, and for topics that the user may not see.
    """

    cluster_id: str
    topic: str
    topic_id: str
    in_cluster: bool | None
    partition: int
    log_start_offset: int | None
    end_offset: int | None
    segments: int | None
    size_bytes: int | None
    local_log_start_offset: int | None = None
    only_remote_records: int | None = None
    only_remote_bytes: int | None = None
    not_copied_records: int | None = None
    problem: str | None = None


def status(arguments: argparse.Namespace) -> int:
    """Print what is there; CommandError if a manifest is damaged."""
    config = settings(arguments.config, arguments.remote_url)
    known: KnownTopics | None = None
    if arguments.offline:
        place = open_place(config)
    else:
        with connected(arguments) as client:
            place = open_place(config, None if config.ottla_remote_url else told_url(client))
            known = known_topics(client, arguments.topics)
    found = asking(place, _look, place, known, arguments)
    if arguments.json:
        print(json.dumps([each._asdict() for each in found], indent=2))
    else:
        _print(found, place, has_asked=known is not None)
    damaged = next((each for each in found if each.problem is not None), None)
    if damaged is not None:
        raise CommandError(f"{damaged.topic}-{damaged.partition}: {damaged.problem}: see `ottla fsck --remote`")
    return 0


async def _look(place: Place, known: KnownTopics | None, arguments: argparse.Namespace) -> list[Status]:
    cluster_id = arguments.cluster_id if known is None else known.cluster_id
    topics = {names.topic_id: names for names in await find_wanted(place, cluster_id, arguments.topics)}
    if known is not None:
        # Of these nothing may be there yet; and here the name is whole.
        topics |= {each: TopicNames(known.cluster_id, known.names[each], each) for each in known.tiered}
    missing = missing_topic(arguments.topics, topics.values())
    if missing is not None:
        raise CommandError(f"{missing} is no tiered topic, and {place.url} has no objects of it")
    found: list[Status] = []
    for names in sorted(topics.values(), key=lambda it: (it.cluster_id, it.topic, it.topic_id)):
        listed = (await list_manifests(place.store, names)).partitions
        partitions = {*listed, *(known.tiered.get(names.topic_id, ()) if known is not None else ())}
        found += await in_parallel(partial(_look_at, place, known, names), sorted(partitions))
    return found


async def _look_at(place: Place, known: KnownTopics | None, names: TopicNames, partition: int) -> Status:
    in_cluster = None if known is None else names.topic_id in known.names
    here = (names.cluster_id, names.topic, str(names.topic_id), in_cluster, partition)
    try:
        content = (await place.store.get(names.manifest(partition))).content
        manifest = await in_a_thread(Manifest.from_bytes, content, names.topic_id, partition)
    except ObjectMissingError:
        manifest = Manifest(names.topic_id, partition)
    except (CorruptObjectError, UnknownFormatError) as error:
        return Status(*here, None, None, None, None, problem=str(error))
    stored = Status(*here, manifest.log_start_offset, manifest.end_offset, len(manifest), manifest.size_bytes)
    where = TopicPartition(names.topic, partition)
    if (
        known is None
        or names.topic_id not in known.tiered
        or not {where} <= known.local_starts.keys() & known.ends.keys()
    ):
        return stored
    start, end = known.local_starts[where], known.ends[where]
    begins = manifest.end_offset if len(manifest) else start
    return stored._replace(
        local_log_start_offset=start,
        only_remote_records=max(0, min(start, manifest.end_offset) - manifest.log_start_offset),
        only_remote_bytes=await in_a_thread(manifest.size_bytes_below, start),
        not_copied_records=max(0, end - max(begins, start)),
    )


def _print(found: Sequence[Status], place: Place, *, has_asked: bool) -> None:
    options.print_table(
        (*_HEAD, *_MORE) if has_asked else _HEAD,
        ([*_stored(each), *(_asked(each) if has_asked else ())] for each in found),
    )
    for topic, topic_id in dict.fromkeys((each.topic, each.topic_id) for each in found if each.in_cluster is False):
        print(f"the cluster shows no topic {topic} with the id {topic_id}: it was deleted, or the user may not see it")
    size = options.human_size(sum(each.size_bytes or 0 for each in found))
    print(f"{options.counted(sum(each.segments or 0 for each in found), 'segment')}, {size} in {place.url}")


def _stored(each: Status) -> list[str]:
    numbers = (each.partition, each.log_start_offset, each.end_offset, each.segments)
    return [each.topic, *map(_number, numbers), _size(each.size_bytes)]


def _asked(each: Status) -> list[str]:
    return [
        _number(each.local_log_start_offset),
        _number(each.only_remote_records),
        _size(each.only_remote_bytes),
        _number(each.not_copied_records),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _size(value: int | None) -> str:
    return "-" if value is None else options.human_size(value)

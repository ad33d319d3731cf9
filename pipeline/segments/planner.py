"""Which parts of which files a scan reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from ottla.pipeline.client import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.errors import DataLossError, OptionError, StoreError, TopicError
from ottla.pipeline.segments.options import SegmentOptions
from ottla.pipeline.segments.scan import Scan
from ottla.storage.errors import StorageError
from ottla.storage.inspect.segment_reader import RealDisk, split_piece
from ottla.storage.inspect.store_view import PartitionView, node_directories, store_directories, view_store

__all__ = ["plan"]

# Longer names are cut to this in a folder's name.
_FOLDER_NAME_CHARACTERS: Final = 200
_SHARED: Final = "shared"
_ATTEMPTS: Final = 3


def plan(options: SegmentOptions) -> list[Scan]:
    """The scans of a read, each of about `max_partition_bytes`.

    Raises StoreError if the folder cannot be read, TopicError if a topic is not in it, OptionError and DataLossError
    for offsets that do not fit.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _plan(options)
        except FileNotFoundError as error:
            # A store in use removes and rewrites files; what is there now is another plan.
            if attempt == _ATTEMPTS - 1 or not os.path.isdir(options.path):
                raise StoreError(
                    f"{options.path} cannot be read as a data folder: {error}. Name the folder that --data-dir gave "
                    "the broker, or a copy of it, as it is seen from Spark's driver and executors."
                ) from error
        except (StorageError, OSError) as error:
            raise StoreError(
                f"The store in {options.path} cannot be read: {error}. `ottla fsck` says what is wrong with it."
            ) from error
    raise AssertionError("unreachable")


def _plan(options: SegmentOptions) -> list[Scan]:
    views = _views(options)
    starting = _offsets("startingOffsets", options, views, options.source.starting.everywhere)
    ending = _offsets("endingOffsets", options, views, options.source.ending.everywhere)
    committed = options.source.client.read_committed
    scans = []
    for part in sorted(views):
        view = views[part]
        start = _begin(options, part, view, starting[part])
        readable = view.last_stable_offset if committed else view.log_end_offset
        end = readable if ending[part] == LATEST else min(ending[part], readable)
        if ending[part] > view.log_end_offset:
            _lost(options, f"Partition {part} ends at offset {view.log_end_offset}, but {ending[part]} was asked for")
        scans += list(_scans(options, part, view, start, end))
    return scans


def _scans(options: SegmentOptions, part: TopicPartition, view: PartitionView, start: int, end: int) -> Iterator[Scan]:
    disk = RealDisk()
    for piece in view.pieces:
        if piece.last_offset < start or piece.base_offset >= end:
            continue
        for slice_ in split_piece(disk, piece, options.max_partition_bytes):
            low, high = max(start, slice_.base_offset), min(end, slice_.last_offset + 1)
            if low < high:
                aborted = tuple(
                    entry
                    for entry in view.aborted
                    if options.source.client.read_committed and entry[1] < high and entry[2] >= low
                )
                yield Scan(part, slice_, low, high, aborted)


def _begin(options: SegmentOptions, part: TopicPartition, view: PartitionView, wanted: int) -> int:
    if wanted == EARLIEST:
        return view.log_start_offset
    if wanted < view.log_start_offset:
        _lost(
            options, f"Partition {part} begins at offset {view.log_start_offset}, but {wanted} is where the read starts"
        )
    return max(wanted, view.log_start_offset)


def _lost(options: SegmentOptions, what: str) -> None:
    if options.source.fail_on_data_loss:
        raise DataLossError(f"{what}. Change the offsets, or set failOnDataLoss to false to read what is there.")


def _offsets(
    name: str, options: SegmentOptions, views: dict[TopicPartition, PartitionView], everywhere: int
) -> dict[TopicPartition, int]:
    positions = options.source.starting if name == "startingOffsets" else options.source.ending
    if positions.offsets is None:
        return dict.fromkeys(views, everywhere)
    if wrong := sorted(set(positions.offsets).symmetric_difference(views)):
        raise OptionError(f"Option {name} must name exactly the partitions that are read; {wrong[0]} differs.")
    return dict(positions.offsets)


def _views(options: SegmentOptions) -> dict[TopicPartition, PartitionView]:
    """The subscribed partitions. Of replicas in the folders of several nodes, the one that reaches furthest counts."""
    subscription = options.source.subscription
    wanted = {_folder_name(topic): topic for topic in subscription.topics}
    wanted |= {_folder_name(part.topic): part.topic for part in subscription.assigned}
    found: dict[TopicPartition, PartitionView] = {}
    seen: set[str] = set()
    disk = RealDisk()
    for node in node_directories(options.path):
        ids: dict[str, str] = {}
        for directory in store_directories(disk, node):
            folder, _, topic_id = os.path.basename(os.path.dirname(directory)).rpartition(".")
            _refuse_shared(directory)
            topic = wanted.get(folder, folder)
            if not subscription.includes(topic):
                continue
            if ids.setdefault(topic, topic_id) != topic_id:
                raise StoreError(
                    f"{node} holds two topics named {topic!r}: one was deleted while the node was down. Start its "
                    "broker once, so that it removes the old one."
                )
            seen.add(topic)
            for view in view_store(disk, directory):
                part = TopicPartition(topic, view.partition)
                if subscription.assigned and part not in subscription.assigned:
                    continue
                if part not in found or found[part].log_end_offset < view.log_end_offset:
                    found[part] = view
    _require(options, seen)
    return found


def _require(options: SegmentOptions, seen: set[str]) -> None:
    subscription = options.source.subscription
    missing = [topic for topic in subscription.topics if topic not in seen]
    missing += [part.topic for part in subscription.assigned if part.topic not in seen]
    if missing:
        raise TopicError(f"There is no topic {missing[0]!r} in {options.path}: check the name and the folder.")
    if subscription.pattern and not seen:
        raise TopicError(f"No topic in {options.path} matches subscribePattern {subscription.pattern!r}.")


def _refuse_shared(directory: str) -> None:
    if os.path.basename(os.path.dirname(directory)) == _SHARED:
        raise StoreError(
            f"{directory} is one store for all topics (store_layout=shared), whose files do not say their names: read "
            "it through its broker with format('ottla')."
        )


def _folder_name(topic: str) -> str:
    return topic[:_FOLDER_NAME_CHARACTERS]

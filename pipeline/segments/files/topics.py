"""The topics in brokers' data folders, and which parts of their files a scan reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from ottla.kproto.records import RecordError
from ottla.pipeline.client import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.errors import OptionError, StoreError, TopicError
from ottla.pipeline.segments.address import folder_of
from ottla.pipeline.segments.files.scan import FileScan
from ottla.pipeline.segments.options import SegmentOptions
from ottla.pipeline.source.positions import Offsets
from ottla.pipeline.source.ranges import OffsetRange
from ottla.storage.errors import StorageError
from ottla.storage.inspect.segment_reader import RealDisk, split_piece
from ottla.storage.inspect.store_view import (
    PartitionView,
    node_directories,
    offset_for_timestamp,
    store_directories,
    view_store,
)

__all__ = ["StoredFiles", "with_files"]

# Longer names are cut to this in a folder's name.
_FOLDER_NAME_CHARACTERS: Final = 200
_SHARED: Final = "shared"
_ATTEMPTS: Final = 3

T = TypeVar("T")


class StoredFiles:
    """The partitions of a data folder, a `StoredTopics`."""

    def __init__(self, options: SegmentOptions, views: dict[TopicPartition, PartitionView]) -> None:
        self._max_partition_bytes = options.max_partition_bytes
        self._read_committed = options.source.client.read_committed
        self._views = views
        self._disk = RealDisk()

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._views)

    def offsets(self, wanted: Offsets) -> Offsets:
        return {part: self._offset(self._views[part], time) for part, time in wanted.items()}

    def scans(self, wanted: OffsetRange, not_before_ms: int) -> Iterator[FileScan]:
        view = self._views[wanted.partition]
        for piece in view.pieces:
            if piece.last_offset < wanted.start or piece.base_offset >= wanted.end:
                continue
            if piece.max_timestamp_ms < not_before_ms:
                continue
            for part in split_piece(self._disk, piece, self._max_partition_bytes):
                low, high = max(wanted.start, part.base_offset), min(wanted.end, part.last_offset + 1)
                if low < high:
                    aborted = view.aborted if self._read_committed else ()
                    reaching = tuple(entry for entry in aborted if entry[1] < high and entry[2] >= low)
                    yield FileScan(OffsetRange(wanted.partition, low, high), part, reaching)

    def _offset(self, view: PartitionView, time_ms: int) -> int:
        end = view.last_stable_offset if self._read_committed else view.log_end_offset
        if time_ms == EARLIEST:
            return view.log_start_offset
        if time_ms == LATEST:
            return end
        found = offset_for_timestamp(self._disk, view, time_ms)
        return -1 if found is None or found >= end else found


def with_files(options: SegmentOptions, work: Callable[[StoredFiles], T]) -> T:
    """What `work` makes of the topics that are asked for. Raises StoreError and TopicError."""
    path = folder_of(options.path)
    if options.only_for_objects:
        raise OptionError(
            f"Option {options.only_for_objects[0]} is for object stores, and {path} is none. A folder that is one is "
            "named as file:///path."
        )
    for attempt in range(_ATTEMPTS):
        try:
            return work(StoredFiles(options, _views(options)))
        except FileNotFoundError as error:
            # A store in use removes and rewrites files; what is there now is another plan.
            if attempt == _ATTEMPTS - 1 or not os.path.isdir(path):
                raise StoreError(
                    f"{path} cannot be read as a data folder: {error}. Name the folder that --data-dir gave "
                    "the broker, or a copy of it, as it is seen from Spark's driver and executors; or an object store: "
                    "s3://, gs://, az:// or file:///."
                ) from error
        except (StorageError, RecordError, OSError) as error:
            raise StoreError(
                f"The store in {path} cannot be read: {error}. `ottla fsck` says what is wrong with it."
            ) from error
    raise AssertionError("unreachable")


def _views(options: SegmentOptions) -> dict[TopicPartition, PartitionView]:
    """The subscribed partitions. Of replicas in the folders of several nodes, the one that reaches furthest counts."""
    subscription = options.source.subscription
    wanted = {_folder_name(topic): topic for topic in subscription.topics}
    wanted |= {_folder_name(part.topic): part.topic for part in subscription.assigned}
    found: dict[TopicPartition, PartitionView] = {}
    seen: set[str] = set()
    disk = RealDisk()
    for node in node_directories(folder_of(options.path)):
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
        raise TopicError(
            f"There is no topic {missing[0]!r} in {folder_of(options.path)}: check the name and the folder."
        )
    if subscription.pattern and not seen:
        raise TopicError(f"No topic in {folder_of(options.path)} matches subscribePattern {subscription.pattern!r}.")


def _refuse_shared(directory: str) -> None:
    if os.path.basename(os.path.dirname(directory)) == _SHARED:
        raise StoreError(
            f"{directory} is one store for all topics (store_layout=shared), whose files do not say their names: read "
            "it through its broker with format('ottla')."
        )


def _folder_name(topic: str) -> str:
    return topic[:_FOLDER_NAME_CHARACTERS]

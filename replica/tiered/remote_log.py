"""The part of one partition's log that is in the object store, as the replica manager sees it.

The manifest says what is there. A leader looks at it once in each of its epochs, and from then on it is the one who
changes it; a follower looks when it needs it. What was seen stays true in this sense: what it names was uploaded, and
may have been deleted since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from ottla.replica.errors import OffsetNotAvailableError, RequestTimedOutError
from ottla.replica.tiered.errors import RemoteStorageError
from ottla.storage.errors import OffsetOutOfRangeError
from ottla.storage.state.leader_epochs import LeaderEpochs
from ottla.tiers.border import joined_epochs
from ottla.tiers.errors import ObjectMissingError, TierError
from ottla.tiers.offload import in_a_thread
from ottla.tiers.reading.lookup import offset_for_timestamp

if TYPE_CHECKING:
    from ottla.replica.tiered.rules import RemoteRules
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.reading.parts import Part
    from ottla.storage.reading.search import TimestampOffset
    from ottla.tiers.manifest import Manifest
    from ottla.tiers.manifest_file import ManifestFile
    from ottla.tiers.names import TopicNames
    from ottla.tiers.reading.reader import RemoteRecords, TierReader

__all__ = ["CopyLag", "RemoteCounters", "RemoteLog", "SharedByRemoteLogs"]

_NEVER: Final = -2


class RemoteCounters:
    """What this node has done with the object store since its start."""

    __slots__ = (
        "copied_bytes",
        "copied_segments",
        "copy_errors",
        "delete_errors",
        "deleted_segments",
        "fetch_errors",
        "fetch_requests",
        "fetched_bytes",
        "late_fetches",
    )

    def __init__(self) -> None:
        self.fetch_requests = 0
        self.fetched_bytes = 0
        self.fetch_errors = 0
        #: Fetches that were answered without records because the object store was slow.
        self.late_fetches = 0
        self.copied_segments = 0
        self.copied_bytes = 0
        self.copy_errors = 0
        self.deleted_segments = 0
        self.delete_errors = 0

    def copied(self, size_bytes: int) -> None:
        """One segment was copied."""
        self.copied_segments += 1
        self.copied_bytes += size_bytes

    def copy_failed(self) -> None:
        """A copy has failed."""
        self.copy_errors += 1

    def deleted(self, segments: int) -> None:
        """Segments were deleted in the object store."""
        self.deleted_segments += segments

    def delete_failed(self) -> None:
        """A deletion has failed."""
        self.delete_errors += 1

    def fetch_begun(self) -> None:
        """A client is read for."""
        self.fetch_requests += 1

    def fetched(self, size_bytes: int) -> None:
        """So much was read for a client."""
        self.fetched_bytes += size_bytes

    def fetch_failed(self) -> None:
        """A read for a client has failed."""
        self.fetch_errors += 1

    def fetch_was_late(self) -> None:
        """A read for a client has taken too long, and nothing was sent for it."""
        self.late_fetches += 1


class CopyLag(NamedTuple):
    """What is sealed and not copied."""

    segments: int = 0
    size_bytes: int = 0


class _Joined(NamedTuple):
    """The epochs of both parts, and what they were made of."""

    revision: int
    local: Sequence[tuple[int, int]]
    epochs: LeaderEpochs


class ListOffsetsSettings(Protocol):
    """How long a lookup waits."""

    @property
    def remote_list_offsets_request_timeout_ms(self) -> int: ...


class SharedByRemoteLogs(NamedTuple):
    """What all remote logs of a node have in common."""

    reader: TierReader
    counters: RemoteCounters
    settings: ListOffsetsSettings


class RemoteLog:
    """What is in the object store of one partition. `name` is that of the partition, for people."""

    __slots__ = ("_joined", "_looked_in", "copy_lag", "counters", "file", "name", "names", "rules", "shared")

    def __init__(
        self, name: str, names: TopicNames, file: ManifestFile, rules: RemoteRules, shared: SharedByRemoteLogs
    ) -> None:
        self.name = name
        self.names = names
        self.file = file
        self.rules = rules
        self.shared = shared
        self.counters = shared.counters
        self._looked_in = _NEVER
        self._joined: _Joined | None = None
        #: As of when this node last looked for something to copy.
        self.copy_lag = CopyLag()

    def note_sealed(self, parts: Sequence[Part]) -> None:
        """These parts are in sealed segments, and those that the manifest does not name are behind."""
        end_offset = 0 if self.manifest is None else self.manifest.end_offset
        sizes = [part.size_bytes for part in parts if part.last_offset >= end_offset]
        self.copy_lag = CopyLag(len(sizes), sum(sizes))

    def follow(self, rules: RemoteRules) -> None:
        """The topic's settings have changed."""
        self.rules = rules

    @property
    def manifest(self) -> Manifest | None:
        """What is there, as far as is known; None before anybody has looked."""
        return self.file.manifest

    # Knowing what is there.

    def is_known(self, leader_epoch: int) -> bool:
        """Whether this node has looked since it leads in this epoch: nobody else has changed anything then."""
        return self._looked_in >= leader_epoch

    @property
    def has_looked(self) -> bool:
        """Whether this node has looked in any epoch."""
        return self._looked_in != _NEVER

    async def look(self, leader_epoch: int) -> Manifest:
        """Look, unless that was done in this epoch. Raises TierError."""
        if self._looked_in < leader_epoch or self.manifest is None:
            await self.file.refresh()
            self._looked_in = max(self._looked_in, leader_epoch)
        assert self.manifest is not None
        return self.manifest

    def log_start(self, local_start: int) -> int:
        """Where the whole log begins, if it begins there on the disk. As long as nobody has looked, on the disk."""
        manifest = self.manifest
        if manifest is None or not manifest.revision or manifest.end_offset < local_start:
            return local_start
        return manifest.log_start_offset

    @property
    def last_offset(self) -> int:
        """The last offset in the object store, -1 if there is none."""
        manifest = self.manifest
        return manifest.end_offset - 1 if manifest is not None and len(manifest) else -1

    def agrees(self, log: PartitionLog) -> bool:
        """Whether the log on the disk has the same history as far as both go. What was lost of it, and then written in
        another way, is not what the manifest names.
        """
        manifest = self.manifest
        if manifest is None or not len(manifest):
            return True
        offset = min(manifest.end_offset, log.log_end_offset) - 1
        if offset < log.log_start_offset or offset < manifest.log_start_offset:
            return True
        return manifest.epochs.epoch_for_offset(offset) == log.epochs.epoch_for_offset(offset)

    def end_beyond(self, log: PartitionLog) -> int | None:
        """Where the object store ends, if it has what the log on the disk has lost; None if it has not.

        Of two histories the one with the later leader epoch counts (KIP-101). A log that was led later than what was
        copied stays as it is, and then nothing more is copied.
        """
        manifest = self.manifest
        if manifest is None:
            return None
        is_beyond = manifest.end_offset > log.log_end_offset
        if not self.agrees(log):
            is_beyond = manifest.epochs.latest_epoch > log.latest_epoch
        return manifest.end_offset if is_beyond else None

    def epochs(self, local: LeaderEpochs) -> LeaderEpochs:
        """The leader epochs of the whole log."""
        manifest = self.manifest
        if manifest is None or not len(manifest):
            return local
        entries = tuple(local)
        joined = self._joined
        if joined is None or joined.revision != manifest.revision or joined.local != entries:
            joined = self._joined = _Joined(manifest.revision, entries, joined_epochs(manifest, local))
        return joined.epochs

    # Reading.

    async def read(self, offset: int, log: PartitionLog, *, max_bytes: int, end_offset: int) -> RemoteRecords:
        """Batches from an offset on that the disk has no more. `end_offset` is where the reader's view ends.

        Raises OffsetOutOfRangeError for what was deleted, and RemoteStorageError.
        """
        self.counters.fetch_begun()
        try:
            if self.manifest is None or self.manifest.find(offset) is None:
                await self.file.refresh()
            try:
                records = await self._read(offset, max_bytes, end_offset)
            except ObjectMissingError:
                # A manifest that is not the newest names what was deleted since.
                await self.file.refresh()
                records = None
            if records is None:
                manifest = self.manifest
                assert manifest is not None
                if offset < manifest.log_start_offset:
                    raise OffsetOutOfRangeError(offset, self.log_start(log.log_start_offset), log.log_end_offset)
                records = await self._read(offset, max_bytes, end_offset)
            if records is None:
                raise RemoteStorageError(f"offset {offset} of {self.name} is neither here nor in {self.manifest!r}")
        except TierError as error:
            raise RemoteStorageError(f"{self.name} cannot be read from offset {offset} on: {error}") from error
        self.counters.fetched(len(records.content))
        return records

    async def _read(self, offset: int, max_bytes: int, end_offset: int) -> RemoteRecords | None:
        manifest = self.manifest
        if manifest is None or manifest.find(offset) is None:
            return None
        return await self.shared.reader.read(self.names, manifest, offset, max_bytes=max_bytes, end_offset=end_offset)

    async def offset_for_timestamp(
        self, timestamp_ms: int, leader_epoch: int, local_start: int
    ) -> TimestampOffset | None:
        """The first record of at least this time, if it may lie below where the log begins on the disk. Raises
        RemoteStorageError.
        """
        reader = self.shared.reader
        try:
            manifest = await self.look(leader_epoch)
            place = await in_a_thread(manifest.place_of_time, timestamp_ms)
            if place is None or manifest[place].base_offset >= local_start:
                return None
            try:
                return await offset_for_timestamp(reader, self.names, manifest, timestamp_ms)
            except ObjectMissingError:
                manifest = await self.file.refresh()
                return await offset_for_timestamp(reader, self.names, manifest, timestamp_ms)
        except TierError as error:
            raise RemoteStorageError(f"{self.name} cannot be searched by time: {error}") from error

    async def look_for_client(self, leader_epoch: int) -> None:
        """`look` for one who asks for offsets. Raises OffsetNotAvailableError, upon which clients ask again."""
        try:
            with trio.fail_after(self.shared.settings.remote_list_offsets_request_timeout_ms / 1000):
                await self.look(leader_epoch)
        except (TierError, trio.TooSlowError) as error:
            raise OffsetNotAvailableError(f"{self.name}: the object store was not looked at yet: {error}") from error

    async def find_for_client(self, timestamp_ms: int, leader_epoch: int, local_start: int) -> TimestampOffset | None:
        """`offset_for_timestamp` within `remote.list.offsets.request.timeout.ms`, or RequestTimedOutError."""
        try:
            with trio.fail_after(self.shared.settings.remote_list_offsets_request_timeout_ms / 1000):
                return await self.offset_for_timestamp(timestamp_ms, leader_epoch, local_start)
        except trio.TooSlowError:
            raise RequestTimedOutError(f"{self.name} could not be searched by time soon enough") from None

    # Deleting.

    async def delete_until(self, offset: int, log: PartitionLog, leader_epoch: int) -> None:
        """Let the whole log begin at an offset, in the object store first. Raises RemoteStorageError or StorageError.

        If it ends between the two, the next leader finds where the log begins in the manifest. It is told also of a log
        of which nothing was copied: an upload may be under way that would name what is deleted.
        """
        try:
            before = len(await self.look(leader_epoch))
            manifest = await self.file.change(lambda found: found.with_log_start(offset, leader_epoch))
            self.counters.deleted(max(0, before - len(manifest)))
        except TierError as error:
            self.counters.delete_failed()
            raise RemoteStorageError(f"{self.name} cannot be deleted up to {offset}: {error}") from error
        if offset > log.log_start_offset:
            await log.advance_log_start_offset(offset)

"""Reading what nobody reads: each sealed segment from time to time, to find damage before somebody runs into it.

The rules:

- It reads at `scrub_bytes_per_second`, in small steps in a worker thread, for at most a twentieth of the time; while
  records come in, at a tenth of that.
- It is inside the gate of the store that it reads, which cancels it when the store is closed, and it keeps the segment
  pinned. What it finds in a segment that was replaced or removed meanwhile is nobody's concern. It stops reading that
  segment, because the room may be wanted at once.
- Damage is reported once (`context.damage`: a log line, `/readyz`, a metric) and stays in `scrub.json`, from where the
  next start reports it again. A pass continues where the last process was.
- What the page cache holds is read from there, which says nothing about the disk. Over weeks, little is read that way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from heapq import merge
from typing import Final

import trio

from ottla.runtime.time_slice import TimeSlice
from ottla.storage.disk.passing import is_out_of_descriptors
from ottla.storage.errors import LogClosedError, StorageError
from ottla.storage.store.context import StorageContext
from ottla.storage.store.message_store import MessageStore
from ottla.storage.store.segment import Segment, pinned
from ottla.storage.upkeep.scrub_state import SCRUB_FILE, ScrubFinding, ScrubState, read_scrub_state, write_scrub_state
from ottla.storage.upkeep.segment_check import SegmentCheck

__all__ = ["Scrubber"]

logger = logging.getLogger(__name__)

_STEP_BYTES: Final = 32_768
_PAUSE_SHARE: Final = 19
_BUSY_SHARE: Final = 10
_POLL_SECONDS: Final = 60.0
_LONGEST_PAUSE_SECONDS: Final = 1.0
_SAVE_SECONDS: Final = 600.0
_SORTED_RUN: Final = 256


class Scrubber:
    """Reads a node's sealed segments, one after the other. The log manager owns and runs it."""

    __slots__ = (
        "_context",
        "_findings",
        "_is_loaded",
        "_node_path",
        "_saved_at",
        "_stores",
        "passes",
        "read_bytes",
        "state",
    )

    def __init__(self, context: StorageContext, node_path: str, stores: Mapping[str, MessageStore]) -> None:
        self._context = context
        self._node_path = node_path
        self._stores = stores
        self._findings: list[ScrubFinding] = []
        self._saved_at = 0.0
        self._is_loaded = False
        self.state = ScrubState()
        #: Since the start.
        self.read_bytes = 0
        self.passes = 0

    async def run(self) -> None:
        """Tell what is known; then read, pass after pass. Forever, until cancelled.

        When it is run once more, after a failure, it goes on where it was.
        """
        if not self._is_loaded:
            await self.load()
        while True:
            config, clock = self._context.config, self._context.clock
            due_ms = self.state.finished_ms + config.scrub_interval_ms
            if config.scrub_bytes_per_second and (self.state.store or clock.time_ms() >= due_ms):
                await self.scrub()
            await trio.sleep(min(_POLL_SECONDS, config.scrub_interval_ms / 1000))

    async def load(self) -> None:
        """Take over what the last process knew, and tell what it found."""
        self.state, known = await self._context.offload(self._read_state)
        for finding in known:
            path = os.path.join(self._node_path, finding.path)
            self._findings.append(finding)
            self._context.damage.found(path, finding.position, f"{os.path.dirname(path)}: {finding.message}")
        self._saved_at = trio.current_time()
        self._is_loaded = True

    async def scrub(self) -> None:
        """One pass over all stores, from where the last one has stopped."""
        if not self.state.store:
            self._findings = []
        began_bytes = self.read_bytes
        time_slice = TimeSlice()
        for store in await self._in_order():
            if time_slice.is_over:
                await time_slice.maybe_yield()
            # Most of many stores have nothing to read.
            if not store.files.has_sealed:
                continue
            name = self._name(store.files.directory)
            if name < self.state.store:
                continue
            try:
                # Cancelled when the store is closed meanwhile.
                with store.gate.interruptible():
                    await self._scrub_store(store, name, self.state.position if name == self.state.store else -1)
            except LogClosedError:
                continue
            except OSError as error:
                if is_out_of_descriptors(error):
                    # Those who serve clients need them more.
                    return
                raise
        has_read = self.read_bytes > began_bytes or self.state.store
        self.state = ScrubState(self._context.clock.time_ms(), tuple(self._findings))
        self._findings = []
        self.passes += 1
        if has_read:
            await self.save()

    async def _in_order(self) -> Iterator[MessageStore]:
        """All stores by the names of their folders. Sorted in parts, as all at once would hold the event loop."""
        stores = list(self._stores.values())
        parts = []
        for first in range(0, len(stores), _SORTED_RUN):
            parts.append(sorted(stores[first : first + _SORTED_RUN], key=_directory_of))
            await trio.lowlevel.checkpoint()
        return merge(*parts, key=_directory_of)

    async def _scrub_store(self, store: MessageStore, name: str, done: int) -> None:
        for position in [segment.position for segment in store.files.segments if segment.position > done]:
            segment = next((each for each in store.files.segments if each.position == position), None)
            if segment is None or not segment.is_sealed or segment.is_lost or not store.is_usable:
                continue
            with pinned([segment]):
                await self._scrub_segment(store, segment)
            self.state = self.state._replace(store=name, position=position)
            if trio.current_time() - self._saved_at >= _SAVE_SECONDS:
                await self.save()

    async def _scrub_segment(self, store: MessageStore, segment: Segment) -> None:
        context = self._context
        check = SegmentCheck(context.disk, segment)
        try:
            read_bytes = _STEP_BYTES
            while read_bytes and not segment.is_doomed:
                written_bytes = context.written_bytes
                began = trio.current_time()
                read_bytes, damage = await context.offload(check.step, _STEP_BYTES)
                took_seconds = trio.current_time() - began
                self.read_bytes += read_bytes
                for position, message in damage:
                    await self._found(store, segment, position, message)
                pause = max(read_bytes / max(context.config.scrub_bytes_per_second, 1), _PAUSE_SHARE * took_seconds)
                await _pause(segment, pause)
                if context.written_bytes != written_bytes:
                    await _pause(segment, pause * (_BUSY_SHARE - 1))
        except StorageError as error:
            await self._found(store, segment, -1, f"{os.path.basename(segment.data_path)}: {error}")
        except OSError as error:
            if is_out_of_descriptors(error):
                raise
            message = f"{os.path.basename(segment.data_path)} cannot be read: {error}"
            await self._found(store, segment, -1, message, is_lasting=False)
        finally:
            # Ends when the disk has closed the file.
            with trio.CancelScope(shield=True):
                await context.offload(check.close)

    async def _found(
        self, store: MessageStore, segment: Segment, position: int, message: str, *, is_lasting: bool = True
    ) -> None:
        """Tell it; what may pass, as a disk that does not answer, is not told again after a restart."""
        if segment not in store.files.segments:
            return
        self._context.damage.found(segment.data_path, position, f"{store.files.directory}: {message}")
        finding = ScrubFinding(self._name(segment.data_path), position, message)
        if not is_lasting:
            return
        self._findings.append(finding)
        if finding in self.state.findings:
            return  # the last pass has seen to it
        await self.save()
        try:
            await store.doubt()
        except OSError as error:
            # The damage stays known in memory.
            logger.warning("%s: the damage cannot be noted: %s", store, error, extra={"error": str(error)})

    def _name(self, path: str) -> str:
        """A path below the node's folder, which may be moved."""
        return path.removeprefix(self._node_path).lstrip(os.sep)

    def _read_state(self) -> tuple[ScrubState, list[ScrubFinding]]:
        """The state, and what the last processes found that is still there. Blocks."""
        disk = self._context.disk
        try:
            state = read_scrub_state(disk, self._node_path)
            return state, [each for each in state.findings if disk.exists(os.path.join(self._node_path, each.path))]
        except OSError as error:
            logger.warning("%s cannot be read: %s", SCRUB_FILE, error, extra={"error": str(error)})
            return ScrubState(), []

    async def save(self) -> None:
        """Let the next process know what this one does."""
        self._saved_at = trio.current_time()
        known = {*self.state.findings, *self._findings}
        state = self.state._replace(findings=tuple(sorted(known)))
        try:
            await self._context.offload(write_scrub_state, self._context.disk, self._node_path, state)
        except OSError as error:
            # The next one says it all.
            logger.warning("%s cannot be written: %s", SCRUB_FILE, error, extra={"error": str(error)})


def _directory_of(store: MessageStore) -> str:
    return store.files.directory


async def _pause(segment: Segment, seconds: float) -> None:
    """Wait between two steps, but not with files that should go."""
    while seconds > 0 and not segment.is_doomed:
        part = min(seconds, _LONGEST_PAUSE_SECONDS)
        await trio.sleep(part)
        seconds -= part

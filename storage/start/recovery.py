"""Opening a store: a fresh one and one that was killed take the same path.

Read the checkpoint; take the runs before the recovery point from the index; read the blocks after it, checking each
block's CRC and each batch's, up to the first bad byte; cut the file there; let every partition take over what the
blocks say. The cost is bounded by what follows the recovery point. If the kernel's boot id is that of the checkpoint,
the page cache has survived and nothing but the last block can be torn: batches before it are not summed again, and what
is not sound before it is damage, which costs no more than what it held.
Everything here blocks: it runs in a worker thread, before anybody knows the store.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container

from ottla.kproto.records.crc import value as crc32c
from ottla.storage.clock import Clock
from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.disk.passing import is_full
from ottla.storage.errors import CorruptLogError
from ottla.storage.format.block import Run, RunKind, iter_runs
from ottla.storage.format.block_scan import BlockHead, find_block, read_exactly, read_head, scan_heads
from ottla.storage.format.checkpoint import CHECKPOINT_NAME, Checkpoint, parse_checkpoint
from ottla.storage.format.run_table import enter_run
from ottla.storage.format.segment_header import (
    NO_BOOT,
    SEGMENT_HEADER_BYTES,
    boot_tag,
    build_segment_header,
    parse_segment_header,
    segment_name,
)
from ottla.storage.format.segment_list import SEGMENT_LIST_NAME
from ottla.storage.start.block_checks import find_following, unsound_runs
from ottla.storage.start.lost_runs import index_lost_segments
from ottla.storage.start.recovered_logs import NewLog, RecoveredLogs
from ottla.storage.store.file_store import sync_file
from ottla.storage.store.index_files import write_sealed_index
from ottla.storage.store.message_store import MessageStore
from ottla.storage.store.segment import Segment
from ottla.storage.store.segment_files import (
    ASIDE_MARK,
    LOSS_FILE,
    Loss,
    free_path,
    list_segments,
    mark_losses,
    set_aside,
)

__all__ = ["Recovery"]

logger = logging.getLogger(__name__)

_COPY_BYTES = 1_048_576


class Recovery:
    """One store's recovery: its files, and through `logs` its partitions. `run`, then `hand_over`."""

    def __init__(self, disk: Disk, clock: Clock, boot_id: str, directory: str, new_log: NewLog) -> None:
        self._disk = disk
        self._clock = clock
        self._boot_id = boot_id
        self._directory = directory
        self._point: Checkpoint | None = None
        self._verify_all = True
        self._segments: list[Segment] = []
        self._last_position = 0
        self._next_sequence = 0
        self._list_content = b""
        self.logs = RecoveredLogs(new_log, {})
        self.replayed_bytes = 0
        # What is missing or damaged, to be said and remembered; also what an earlier start has set aside for that.
        self.losses: list[Loss] = []
        self._has_found_losses = False
        # Whether the folder says that records may be missing, for the starts to come.
        self.is_marked = False

    @property
    def has_lost(self) -> bool:
        """Whether the store may lack records, or an earlier start has found that and the cluster may not know it."""
        return self._has_found_losses or bool(self.logs.lost) or self.is_marked

    def mark(self) -> None:
        """Note in the store's folder, for good, that records may be missing: the next checkpoint makes it forgotten."""
        if not self.is_marked and self._disk.exists(self._directory):
            self._disk.write_file_atomic(os.path.join(self._directory, LOSS_FILE), b"")
            self.is_marked = True

    def run(self) -> None:
        """Recover. OSError if the disk fails."""
        try:
            names = self._disk.listdir(self._directory)
        except FileNotFoundError:
            if self._disk.exists(self._directory):
                raise  # a link to a folder that is not there
            return
        if SEGMENT_LIST_NAME in names:
            self._list_content = self._disk.read_file(os.path.join(self._directory, SEGMENT_LIST_NAME))
        self.is_marked = LOSS_FILE in names
        if CHECKPOINT_NAME in names:
            self._read_checkpoint()
        segments = self._list_segments(names)
        self._check_point(segments)
        self._last_position = segments[-1].position if segments else 0
        for place, segment in enumerate(segments):
            if not self._follows(segment):
                self._set_aside(segments[place:])
                break
            if not self._recover_segment(segment):
                self._set_aside(segments[place + 1 :])
                break
        self.losses += mark_losses(self._disk, self._segments)
        index_lost_segments(self._disk, self._segments, self.logs.bounds)
        self._has_found_losses = bool(self.losses)
        if self.losses or self.is_marked:
            names = self._disk.listdir(self._directory)  # this start may have set something aside, too
        self.losses += set_aside(self._directory, names)
        self._next_sequence = self.logs.distrust_states_from(self._next_sequence)
        self._seal_rolled()
        if self.has_lost:
            self._mark_if_there_is_room()

    def _seal_rolled(self) -> None:
        # A store that lost blocks goes on in a new segment, whose sequences are beyond all that were ever used.
        sealable = [
            segment
            for segment in (self._segments if self.logs.lost else self._segments[:-1])
            if segment.tables is not None
        ]
        if sealable:
            # All of them: what a later one voids is voided in the indexes of those before.
            for segment in self._segments:
                if segment.tables is not None:
                    sync_file(self._disk, segment.data_path)
        for segment in sealable:
            if not self._seal(segment):
                break

    def _mark_if_there_is_room(self) -> None:
        try:
            self.mark()
        except OSError as error:
            if not is_full(error):
                raise

    def _seal(self, segment: Segment) -> bool:
        """Write a rolled segment's index; False if there is no room: it is served unsealed, and sealed later."""
        assert segment.tables is not None
        try:
            write_sealed_index(self._disk, segment, segment.tables)
        except OSError as error:
            if not is_full(error) or self.logs.lost:
                raise
            return False
        segment.sealed()
        return True

    def hand_over(self, store: MessageStore) -> None:
        """Give the store what was found; it serves from now on."""
        # The process that wrote the replayed blocks may not have synced them.
        store.files.adopt(self._segments, self._next_sequence, self.replayed_bytes, self._list_content)
        position = self._point.segment_position if self._point is not None else 0
        store.restore(self.logs.logs, self.logs.changed, self.logs.snapshots, position)

    def _read_checkpoint(self) -> None:
        path = os.path.join(self._directory, CHECKPOINT_NAME)
        try:
            self._point, states = parse_checkpoint(self._disk.read_file(path))
        except CorruptLogError as error:
            logger.warning("%s: %s; reading all blocks instead", path, error, extra={"path": path, "error": str(error)})
            return
        self.logs.snapshots.update(states)
        self._next_sequence = self._point.next_sequence
        self._verify_all = self._point.boot_id != self._boot_id

    # Segments.

    def _follows(self, segment: Segment) -> bool:
        """Whether the replayed segment before it ends where this one was begun; if not, it has lost whole blocks."""
        previous = self._segments[-1] if self._segments else None
        if previous is None or previous.tables is None:
            return True
        return segment.position == previous.position + previous.size_bytes

    def _check_point(self, segments: list[Segment]) -> None:
        """Without the segment that the checkpoint speaks of nothing is known of what was written last."""
        point = self._point
        if point is None:
            return
        found = [segment for segment in segments if segment.position == point.segment_position]
        if not found:
            segment = Segment(self._directory, point.segment_position)
            self._keep_evidence(segment)
            message = f"{segment.data_path} is lost: the logs of the store end before it"
            self.losses.append(Loss(segment.data_path, -1, message))
            self.logs.distrust_all()

    def _keep_evidence(self, segment: Segment) -> None:
        """The index of the runs that are lost stays beside, for who looks for what they were."""
        if self._disk.exists(segment.index_path):
            self._disk.rename(segment.index_path, free_path(self._disk, segment.index_path + ASIDE_MARK))

    def _is_lost(self, segment: Segment) -> bool:
        """Take in a segment of which the data file is gone; false for others."""
        if not segment.is_lost:
            return False
        self._segments.append(segment)
        if self._point is None or segment.position >= self._point.segment_position:
            # Its blocks would have been replayed.
            self.logs.distrust_all()
        return True

    def _recover_segment(self, segment: Segment) -> bool:
        """Take a segment in; False if its end was cut, so that nothing after it counts."""
        if self._is_lost(segment):
            return True
        handle = self._disk.open_write(segment.data_path)
        try:
            segment.found(self._disk.size(handle))
            written_at_ms = self._disk.modified_ms(handle)
            segment.restore_written_at(self._clock.time_ms() if written_at_ms is None else written_at_ms)
            header = parse_segment_header(read_exactly(self._disk, handle, 0, SEGMENT_HEADER_BYTES))
            if header is not None:
                segment.adopt_header(header)
            self._segments.append(segment)
            point = self._point
            if segment.generation or (point is not None and segment.position < point.segment_position):
                if header is None:
                    keys = {"path": segment.data_path}
                    logger.error("%s: the segment's header is damaged", segment.data_path, extra=keys)
                if point is None:
                    self._replay_sealed(segment, handle)
                return True
            start = SEGMENT_HEADER_BYTES
            self._next_sequence = max(self._next_sequence, segment.first_sequence)
            segment.reopen()
            if point is not None and segment.position == point.segment_position:
                if segment.size_bytes < point.data_length:
                    return self._recover_short(segment, handle, point, has_header=header is not None)
                start = point.data_length
                self._next_sequence = point.next_sequence
                self._load_index(segment, handle, point)
            else:
                self._write_header(segment, handle, is_damaged=header is None)
            return self._replay(segment, handle, start)
        finally:
            self._disk.close(handle)

    def _recover_short(self, segment: Segment, handle: Handle, point: Checkpoint, *, has_header: bool) -> bool:
        """The file has lost bytes that the checkpoint speaks of: what is left is read from its first block on."""
        message = f"{segment.data_path} ends at byte {segment.size_bytes} of {point.data_length}: what followed is lost"
        self.losses.append(Loss(segment.data_path, segment.size_bytes, message))
        self._keep_evidence(segment)
        self._next_sequence = segment.first_sequence if has_header else point.next_sequence
        self._write_header(segment, handle, is_damaged=not has_header)
        self._verify_all = True
        self._replay(segment, handle, SEGMENT_HEADER_BYTES)
        self.logs.distrust_all()
        self._next_sequence = max(self._next_sequence, point.next_sequence)
        return False

    def _write_header(self, segment: Segment, handle: Handle, *, is_damaged: bool) -> None:
        """Write again the header of a segment that is replayed, as its blocks are; a new one in place of a torn one."""
        if is_damaged:
            logger.warning("%s: the segment's header is torn", segment.data_path, extra={"path": segment.data_path})
            size_bytes = segment.size_bytes
            segment.begin(self._next_sequence, self._clock.time_ms())
            segment.found(max(size_bytes, SEGMENT_HEADER_BYTES))
        header = build_segment_header(
            0, segment.position, segment.first_sequence, segment.created_at_ms, boot_tag=segment.boot_tag
        )
        self._disk.pwritev(handle, [header], 0)

    def _load_index(self, segment: Segment, handle: Handle, point: Checkpoint) -> None:
        """The runs before the recovery point: from the index file if it is sound, else from the blocks."""
        tables = segment.tables
        assert tables is not None
        try:
            content = self._disk.read_file(segment.index_path)[: point.index_length]
        except FileNotFoundError:
            content = b""
        if len(content) == point.index_length and crc32c(content) == point.index_crc:
            runs = list(iter_runs(content))
            segment.restore_index(len(runs), point.index_length, point.index_crc)
        else:
            keys = {"path": segment.index_path}
            logger.warning("%s: missing, damaged or sealed; reading the blocks instead", segment.index_path, extra=keys)
            heads = scan_heads(self._disk, handle, point.data_length, skip_damage=True)
            runs = [run for head in heads for run in head.runs]
            segment.note_runs([run.pack() for run in runs])
        for run in runs:
            self._enter(segment, run)

    def _enter(self, segment: Segment, run: Run) -> None:
        """Enter a run in the tables: what it voids is voided in the unsealed segments before, too."""
        assert segment.tables is not None
        enter_run(segment.tables, run)
        table = segment.tables.get(run.key)
        if run.kind != RunKind.DATA and table is not None:
            for earlier in self._segments[:-1]:
                if earlier.tables is not None and run.key in earlier.tables:
                    earlier.tables[run.key].truncate(table.truncated_to)

    def _replay(self, segment: Segment, handle: Handle, start: int) -> bool:
        """Read the blocks from `start` on; cut what follows the last sound one. False if something was cut.

        Where nothing can have been torn, what is not sound is damage: it is passed over if sound blocks follow.
        """
        end = segment.size_bytes
        position = start
        while position < end:
            head = read_head(self._disk, handle, position, end)
            if head is None or head.header.sequence != self._next_sequence:
                head = self._pass_over(segment, handle, position)
                if head is None:
                    break
            body = read_exactly(self._disk, handle, head.position, head.header.length)
            unsound = unsound_runs(head, body, verify=self._verify_all or head.end == end)
            if unsound and not self._is_damage(segment, handle, head):
                break
            self._take_in(segment, handle, head, body, unsound)
            position = head.end
        if position == end or (self._is_before_others(segment) and self._may_pass_over(segment)):
            return True
        self._cut(segment, handle, position)
        return False

    def _take_in(self, segment: Segment, handle: Handle, head: BlockHead, body: bytes, unsound: Container[Run]) -> None:
        # Written again, because the process before may have died of a failed sync: the kernel then holds these
        # pages to be clean, and no later sync would bring them to the disk.
        self._disk.pwritev(handle, [body], head.position)
        packed = []
        for run in head.runs:
            missed = self.logs.missed_before(run)
            if missed is not None:
                self._enter(segment, missed)
                packed.append(missed.pack())
            self._enter(segment, run)
            packed.append(run.pack())
            if run in unsound:
                self.logs.apply_damaged(run)
            else:
                self.logs.apply(head, run, body)
        if unsound:
            self._note_damage(segment, head.position, head.end)
        segment.note_runs(packed)
        self._next_sequence = head.header.sequence + 1
        self.replayed_bytes += head.header.length

    # Damage among the blocks that are replayed.

    def _may_pass_over(self, segment: Segment) -> bool:
        """Whether the file was whole, so that what is not sound is damage, and nothing that a power cut has torn.

        It was if the machine has run on since the file was begun or the checkpoint written, or if it was sealed. And
        each log must be known as it was before the damage, or nobody can say what of it is missing.
        """
        ran_on = not self._verify_all or segment.boot_tag == boot_tag(self._boot_id) != NO_BOOT
        was_whole = ran_on or segment.listed_bytes > 0
        return was_whole and not self.logs.know_of_block(self._next_sequence)

    def _is_before_others(self, segment: Segment) -> bool:
        return segment.position < self._last_position

    def _is_damage(self, segment: Segment, handle: Handle, head: BlockHead) -> bool:
        """Whether a block with an unsound run is damaged: it was not the last that was written."""
        if not self._may_pass_over(segment):
            return False
        if head.end == segment.size_bytes:
            return self._is_before_others(segment)
        following = read_head(self._disk, handle, head.end, segment.size_bytes)
        return following is not None and following.header.sequence == head.header.sequence + 1

    def _pass_over(self, segment: Segment, handle: Handle, position: int) -> BlockHead | None:
        """The block to go on with after whole blocks that are damaged; None if there is none in this file."""
        if not self._may_pass_over(segment):
            return None
        end = segment.size_bytes
        head = find_following(self._disk, handle, position, end, self._next_sequence)
        if head is not None or self._is_before_others(segment):
            self._note_damage(segment, position, end if head is None else head.position)
            self.logs.miss_blocks()
        return head

    def _note_damage(self, segment: Segment, start: int, end: int) -> None:
        message = f"{segment.data_path} is damaged between bytes {start} and {end}: what cannot be read there is lost"
        self.losses.append(Loss(segment.data_path, start, message))

    def _replay_sealed(self, segment: Segment, handle: Handle) -> None:
        """Without a checkpoint a rewritten segment must be read too: for its partitions' state, not for its runs."""
        for head in scan_heads(self._disk, handle, segment.size_bytes, skip_damage=True):
            body = read_exactly(self._disk, handle, head.position, head.header.length)
            if not unsound_runs(head, body, verify=True):
                for run in head.runs:
                    self.logs.apply(head, run, body)
            else:
                keys = {"path": segment.data_path}
                logger.error("%s: the block at byte %d is damaged", segment.data_path, head.position, extra=keys)

    def _cut(self, segment: Segment, handle: Handle, position: int) -> None:
        """Cut the tail after the last sound block. A sound block beyond says that this is damage: it is kept aside."""
        end = segment.size_bytes
        beyond = find_block(self._disk, handle, position + 1, end)
        if beyond is not None:
            # Before the file is cut, as nothing in it says afterwards that it was.
            self.mark()
            aside = _copy_tail(self._disk, handle, position, end, f"{segment.data_path}{ASIDE_MARK}-{position}")
            logger.error(
                "%s: damaged at byte %d with blocks beyond: %d bytes are set aside in %s, see `ottla salvage`",
                segment.data_path,
                position,
                end - position,
                aside,
                extra={"path": segment.data_path},
            )
        else:
            keys = {"path": segment.data_path}
            logger.warning(
                "%s: cut a torn tail of %d bytes at %d", segment.data_path, end - position, position, extra=keys
            )
        self._disk.truncate(handle, position)
        self._disk.fdatasync(handle)
        segment.found(position)

    def _set_aside(self, segments: list[Segment]) -> None:
        """What follows a cut segment cannot count: a log keeps a prefix."""
        if segments:
            self.mark()
        for segment in segments:
            if segment.is_lost:
                # Perhaps an earlier start has set it aside, and was killed before the list was replaced.
                if not self._disk.exists(segment.data_path + ASIDE_MARK):
                    self.losses.append(Loss(segment.data_path, -1, f"{segment.data_path} is lost"))
                self._keep_evidence(segment)
                continue
            keys = {"path": segment.data_path}
            logger.error("%s: set aside, the segment before it ends early", segment.data_path, extra=keys)
            self._disk.rename(segment.data_path, free_path(self._disk, segment.data_path + ASIDE_MARK))

    def _list_segments(self, names: list[str]) -> list[Segment]:
        """The segments by position. What an interrupted rewrite left is removed: its halves, or what it replaced."""
        segments = list_segments(self._disk, self._directory, names)
        known = {segment_name(segment.position, segment.generation) for segment in segments}
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind in {"new", "tmp"} or (kind in {"data", "index"} and stem not in known):
                self._disk.unlink(os.path.join(self._directory, name))
        return segments


def _copy_tail(disk: Disk, handle: Handle, position: int, end: int, path: str) -> str:
    """Copy what is about to be cut, durably; returns the name of the copy, which has it as soon as it is whole."""
    unfinished = f"{path}.tmp"
    copy = disk.create(unfinished)
    try:
        for at in range(position, end, _COPY_BYTES):
            disk.pwritev(copy, [read_exactly(disk, handle, at, min(_COPY_BYTES, end - at))], at - position)
        disk.fdatasync(copy)
    finally:
        disk.close(copy)
    aside = free_path(disk, path)
    disk.rename(unfinished, aside)
    disk.fsync_directory(os.path.dirname(path))
    return aside

"""Checking a stopped node's stores without changing a byte, and saying exactly what is wrong (`ottla fsck`).

Every block's head, every batch's CRC and place, every index file against its data, the checkpoint, and that each
partition's offsets ascend. What a start would repair by itself (a torn tail, a missing index) is a warning; damage
is an error. What is normal, such as a store without a checkpoint yet, is a note, and the folder is sound.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import iter_batches, verify_crc
from ottla.storage.errors import CorruptLogError, StorageError, UnsupportedFormatError
from ottla.storage.format.block import Run, RunFlag, RunKind, split_key
from ottla.storage.format.block_scan import BlockHead, find_block, read_exactly, scan_heads
from ottla.storage.format.checkpoint import CHECKPOINT_NAME, Checkpoint, parse_checkpoint
from ottla.storage.format.run_table import RunTable, enter_run
from ottla.storage.format.sealed_index import SealedIndex
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES, parse_segment_header
from ottla.storage.format.segment_list import SEGMENT_LIST_NAME, parse_segment_list
from ottla.storage.format.topic_file import TOPIC_FILE
from ottla.storage.kept_logs import KEPT_FILE, cut_files, describe_kept_log, read_kept_logs
from ottla.storage.node_dir import read_note, store_directories
from ottla.storage.store.segment import Segment
from ottla.storage.store.segment_files import ASIDE_MARK, LOSS_FILE, list_segments, mark_losses

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle

__all__ = ["Finding", "Report", "check_node", "store_directories"]


_OTHER_FILES = frozenset({CHECKPOINT_NAME, LOSS_FILE, SEGMENT_LIST_NAME, TOPIC_FILE})


@dataclass(slots=True, frozen=True)
class Finding:
    """Something worth saying. `severity` is error, warning or note; `position` a byte, or -1 for the whole file."""

    severity: str
    path: str
    position: int
    message: str


@dataclass(slots=True)
class Report:
    """What a check has seen and found."""

    stores: int = 0
    segments: int = 0
    blocks: int = 0
    batches: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def error(self, path: str, position: int, message: str) -> None:
        """Damage: records are lost, or cannot be trusted."""
        self.findings.append(Finding("error", path, position, message))

    def warn(self, path: str, position: int, message: str) -> None:
        """Something that the next start repairs, losing nothing that was synced."""
        self.findings.append(Finding("warning", path, position, message))

    def note(self, path: str, position: int, message: str) -> None:
        """Something that is in order, but takes the next start some time."""
        self.findings.append(Finding("note", path, position, message))

    @property
    def is_sound(self) -> bool:
        """True without any error or warning."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def is_damaged(self) -> bool:
        """True if there is an error among the findings."""
        return any(finding.severity == "error" for finding in self.findings)


def check_node(disk: Disk, node_path: str) -> Report:
    """Check all stores of a node's folder."""
    report = Report()
    was_clean = _was_closed_in_order(disk, node_path)
    for directory in store_directories(disk, node_path):
        report.stores += 1
        _StoreCheck(disk, directory, report, was_clean=was_clean).run()
    _name_kept_logs(disk, node_path, report)
    return report


def _name_kept_logs(disk: Disk, node_path: str, report: Report) -> None:
    """What is kept although the cluster does not count on it."""
    path = os.path.join(node_path, KEPT_FILE)
    try:
        for log in read_kept_logs(disk, node_path):
            report.note(path, -1, describe_kept_log(log))
    except CorruptLogError as error:
        report.warn(path, -1, f"{error}; the next start writes it again")
    for cut in cut_files(disk, node_path):
        report.warn(cut, -1, "set aside when a leader lacked it; see `ottla salvage`, and remove it afterwards")


def _was_closed_in_order(disk: Disk, node_path: str) -> bool:
    """Whether the node's last owner stopped in order. A restored backup of a running broker was not."""
    try:
        note = read_note(disk, node_path)
    except (OSError, UnsupportedFormatError):
        return False
    return note is not None and bool(note.get("clean_shutdown"))


class _StoreCheck:
    """One store's check."""

    def __init__(self, disk: Disk, directory: str, report: Report, *, was_clean: bool) -> None:
        self._was_clean = was_clean
        self._disk = disk
        self._directory = directory
        self._report = report
        self._ends: dict[bytes, int] = {}
        #: The partitions that the checkpoint knows, and where its recovery point's segment begins.
        self._known: frozenset[bytes] = frozenset()
        self._recovery_position = 0
        #: By path and partition: the first offset that is in a data file and missing in its index.
        self._lacking: dict[tuple[str, bytes], int] = {}
        #: By partition: where offsets go back without a truncation; that is fine if the partition was deleted later.
        self._going_back: dict[bytes, list[Finding]] = {}
        self._point: Checkpoint | None = None

    def run(self) -> None:
        names = self._disk.listdir(self._directory)
        self._check_checkpoint(names)
        self._check_list(names)
        segments = list_segments(self._disk, self._directory, names)
        known = {os.path.basename(path) for segment in segments for path in (segment.data_path, segment.index_path)}
        for name in names:
            path = os.path.join(self._directory, name)
            if ASIDE_MARK in name:
                self._report.warn(
                    path, -1, "set aside by a start that found damage; remove it when you have dealt with it"
                )
            elif name not in known and name not in _OTHER_FILES:
                self._report.warn(path, -1, "left over from an interrupted write; the next start removes it")
        for place, segment in enumerate(segments):
            if not segment.is_lost:
                self._check_segment(segment, names, is_last=place == len(segments) - 1)
        for loss in mark_losses(self._disk, segments):
            self._report.error(loss.path, loss.position, loss.message)
        self._check_point(segments)
        for path in dict.fromkeys(path for path, _ in self._lacking):
            self._report.error(path, -1, "the index does not agree with its data file")
        for findings in self._going_back.values():
            self._report.findings += findings

    def _check_checkpoint(self, names: list[str]) -> None:
        path = os.path.join(self._directory, CHECKPOINT_NAME)
        if CHECKPOINT_NAME not in names:
            # The first checkpoint is taken after this much data, or at the stop.
            say = self._report.warn if self._was_clean else self._report.note
            say(path, -1, "there is no checkpoint; the next start reads all blocks")
            return
        try:
            self._point, states = parse_checkpoint(self._disk.read_file(path))
            self._recovery_position, self._known = self._point.segment_position, frozenset(states)
        except StorageError as error:
            self._report.warn(path, -1, f"{error}; the next start reads all blocks")

    def _check_list(self, names: list[str]) -> None:
        path = os.path.join(self._directory, SEGMENT_LIST_NAME)
        try:
            if SEGMENT_LIST_NAME in names:
                parse_segment_list(self._disk.read_file(path))
        except StorageError as error:
            self._report.warn(path, -1, f"{error}; the next start writes it again")

    def _check_point(self, segments: list[Segment]) -> None:
        """Whether the segment to which the checkpoint refers is there, up to the length that it knows."""
        point = self._point
        if point is None:
            return
        last = next((each for each in segments if each.position == point.segment_position), None)
        path = Segment(self._directory, point.segment_position).data_path
        if last is None:
            self._report.error(path, -1, "the segment that the checkpoint refers to is lost")
        elif not last.is_lost and last.size_bytes < point.data_length:
            lost_bytes = point.data_length - last.size_bytes
            self._report.error(path, last.size_bytes, f"the last {lost_bytes} bytes before the checkpoint are lost")

    def _check_segment(self, segment: Segment, names: list[str], *, is_last: bool) -> None:
        disk, report = self._disk, self._report
        report.segments += 1
        handle = disk.open_read(segment.data_path)
        try:
            segment.found(disk.size(handle))
            report.bytes += segment.size_bytes
            header = parse_segment_header(read_exactly(disk, handle, 0, SEGMENT_HEADER_BYTES))
            if header is None:
                self._miss_header(segment)
            tables = self._check_blocks(segment, handle, is_last=is_last)
        except StorageError as error:
            report.error(segment.data_path, 0, str(error))
            return
        finally:
            disk.close(handle)
        self._let_lack(tables)
        if not is_last:
            self._check_index(segment, tables, os.path.basename(segment.index_path) in names)

    def _miss_header(self, segment: Segment) -> None:
        point = self._point
        if segment.generation or (point is not None and segment.position <= point.segment_position):
            self._report.error(segment.data_path, 0, "the segment's header is damaged")
        else:
            # A kill, a power cut or a backup has come before its first write was whole. A start replays such a segment.
            self._report.warn(segment.data_path, 0, "the segment has no header yet; the next start writes it")

    def _check_blocks(self, segment: Segment, handle: Handle, *, is_last: bool) -> dict[bytes, RunTable]:
        tables: dict[bytes, RunTable] = {}
        position = SEGMENT_HEADER_BYTES
        for head in scan_heads(self._disk, handle, segment.size_bytes, skip_damage=True):
            if head.position != position:
                self._damaged(segment, position, head.position)
            self._report.blocks += 1
            body = read_exactly(self._disk, handle, head.position, head.header.length)
            for run in head.runs:
                enter_run(tables, run)
                self._check_run(segment, head, run, memoryview(body))
            position = head.end
        if position < segment.size_bytes:
            if is_last and find_block(self._disk, handle, position + 1, segment.size_bytes) is None:
                torn = segment.size_bytes - position
                self._report.warn(segment.data_path, position, f"a torn tail of {torn} bytes; the next start cuts it")
            else:
                self._damaged(segment, position, segment.size_bytes)
        return tables

    def _damaged(self, segment: Segment, start: int, end: int) -> None:
        self._report.error(segment.data_path, start, f"no sound block for {end - start} bytes")

    def _check_run(self, segment: Segment, head: BlockHead, run: Run, body: memoryview) -> None:
        name = _name_of(run.key)
        if run.kind != RunKind.DATA:
            if run.kind == RunKind.TRUNCATE:
                self._ends[run.key] = min(run.base_offset, self._ends.get(run.key, 0))
            elif run.kind == RunKind.DELETE or run.base_offset == run.last_offset:
                # Everything before it is void. Where a rewritten segment says so, its batches may begin before it.
                self._ends[run.key] = 0
                # What later made it void may have been forgotten in a segment that was rewritten since.
                self._going_back.pop(run.key, None)
            return
        start = run.position - head.position
        if start < head.header.head_bytes or start + run.length > head.header.length:
            self._report.error(segment.data_path, head.position, f"a run of {name} lies outside its block")
            return
        if run.base_offset < self._ends.get(run.key, 0):
            message = f"offsets of {name} go back to {run.base_offset}"
            finding = Finding("error", segment.data_path, run.position, message)
            if not self._was_deleted(segment, run.key):
                self._going_back.setdefault(run.key, []).append(finding)
        self._ends[run.key] = run.last_offset + 1
        piece = body[start : start + run.length]
        pos, expected = 0, run.base_offset
        try:
            for pos, batch in iter_batches(piece):
                self._report.batches += 1
                verify_crc(piece, pos, batch)
                if batch.base_offset < expected or batch.last_offset > run.last_offset:
                    self._report.error(
                        segment.data_path,
                        run.position + pos,
                        f"a batch of {name} at {batch.base_offset} is not in its place",
                    )
                expected = batch.next_offset
        except ProtocolError as error:
            self._report.error(segment.data_path, run.position + pos, f"a batch of {name}: {error}")

    def _check_index(self, segment: Segment, tables: dict[bytes, RunTable], exists: bool) -> None:
        path = segment.index_path
        if not exists:
            self._report.warn(path, -1, "the index is missing; it is rebuilt when it is needed")
            return
        handle = self._disk.open_read(path)
        try:
            index = SealedIndex(self._disk, handle, segment.generation, segment.size_bytes)
            held: dict[bytes, bytes] = {}
            for page in index.all_pages():
                held[page.key] = held.get(page.key, b"") + bytes(index.read_page(self._disk, handle, page).data)
        except StorageError as error:
            self._report.warn(path, -1, f"{error}; it is rebuilt when it is needed")
            return
        finally:
            self._disk.close(handle)
        for key in held.keys() | tables.keys():
            expected = tables.get(key, RunTable())
            offset = _first_lacking(RunTable(held.get(key, b"")), expected)
            if offset is not None and not (
                self._was_deleted(segment, key) and len(expected) and offset == expected.base_offset
            ):
                self._lacking[path, key] = offset

    def _was_deleted(self, segment: Segment, key: bytes) -> bool:
        """Whether the checkpoint does not know a partition in a segment to which it refers."""
        return segment.position < self._recovery_position and key not in self._known

    def _let_lack(self, tables: Mapping[bytes, RunTable]) -> None:
        """Indexes may lack what a later segment makes void: if that is known when they are written, it is left out."""
        for path, key in list(self._lacking):
            table = tables.get(key)
            if table is not None and table.truncated_to <= self._lacking[path, key]:
                del self._lacking[path, key]


def _first_lacking(held: RunTable, expected: RunTable) -> int | None:
    """The first offset that an index's runs lack; None if they agree, -1 if they differ otherwise."""
    if bytes(held.data) == bytes(expected.data):
        return None
    if len(held) and held[-1].flags & RunFlag.CLIPPED:
        offset = held.last_offset + 1
    elif len(held) < len(expected):
        offset = expected[len(held)].base_offset
    else:
        return -1
    clipped = RunTable(expected.data)
    clipped.truncate(offset)
    return offset if bytes(clipped.data) == bytes(held.data) else -1


def _name_of(key: bytes) -> str:
    topic_id, partition = split_key(key)
    return f"partition {partition} of topic {UUID(bytes=topic_id)}"

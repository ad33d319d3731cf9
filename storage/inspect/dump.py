"""Showing what is in data files: blocks, runs, batches, records (`ottla dump`). Damage is shown, not hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import BatchHeader, crc_matches, iter_batches, iter_records
from ottla.storage.format.block import Run, RunFlag, RunKind, split_key
from ottla.storage.format.block_scan import BlockHead, read_exactly, scan_heads
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES, parse_segment_header

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle

__all__ = ["LEVELS", "dump_file"]

_KINDS = {
    RunKind.DATA: "data",
    RunKind.TRUNCATE: "truncate",
    RunKind.LOG_START: "log start",
    RunKind.DELETE: "delete",
}
_FLAGS = {RunFlag.TRANSACTIONAL: "transactional", RunFlag.CONTROL: "control", RunFlag.CLEANED: "cleaned"}
LEVELS = ("blocks", "runs", "batches", "records")
"""How deep a dump goes."""


Explain = Callable[[bytes | memoryview | None, bytes | memoryview | None], dict[str, Any] | None]
"""What a record's key and value say, by the names of the fields; None for what it knows nothing of."""


def dump_file(
    disk: Disk, path: str, depth: int, partition: int | None = None, explain: Explain | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one description of each thing down to a depth: 0 blocks, 1 runs, 2 batches, 3 records."""
    handle = disk.open_read(path)
    try:
        size = disk.size(handle)
        header = parse_segment_header(read_exactly(disk, handle, 0, SEGMENT_HEADER_BYTES))
        if header is None:
            yield {"type": "damage", "path": path, "position": 0, "message": "not a segment, or its header is damaged"}
        else:
            fields = header._asdict() | {"boot_tag": header.boot_tag.hex(), "size": size}
            yield {"type": "segment", "path": path} | {
                key: fields[key] for key in fields if key not in ("magic", "crc")
            }
        position = SEGMENT_HEADER_BYTES
        for head in scan_heads(disk, handle, size, skip_damage=True):
            if head.position != position:
                yield _gap(path, position, head.position)
            yield from _dump_block(disk, handle, path, head, depth, partition, explain)
            position = head.end
        if position < size:
            yield _gap(path, position, size)
    finally:
        disk.close(handle)


def _gap(path: str, start: int, end: int) -> dict[str, Any]:
    return {"type": "damage", "path": path, "position": start, "message": f"no sound block for {end - start} bytes"}


def _dump_block(
    disk: Disk,
    handle: Handle,
    path: str,
    head: BlockHead,
    depth: int,
    partition: int | None,
    explain: Explain | None,
) -> Iterator[dict[str, Any]]:
    yield {
        "type": "block",
        "position": head.position,
        "sequence": head.header.sequence,
        "length": head.header.length,
        "written_at_ms": head.header.written_at_ms,
        "runs": head.header.run_count,
    }
    if depth == 0:
        return
    for run in head.runs:
        topic_id, number = split_key(run.key)
        if partition is not None and number != partition:
            continue
        yield {
            "type": "run",
            "kind": _KINDS.get(run.kind, run.kind),
            "topic_id": str(UUID(bytes=topic_id)),
            "partition": number,
            "leader_epoch": run.leader_epoch,
            "base_offset": run.base_offset,
            "last_offset": run.last_offset,
            "max_timestamp_ms": run.max_timestamp_ms,
            "position": run.position,
            "length": run.length,
            "flags": [name for bit, name in _FLAGS.items() if run.flags & bit],
        }
        if depth > 1 and run.kind == RunKind.DATA:
            yield from _dump_run(disk, handle, path, run, depth, explain)


def _dump_run(
    disk: Disk, handle: Handle, path: str, run: Run, depth: int, explain: Explain | None
) -> Iterator[dict[str, Any]]:
    content = read_exactly(disk, handle, run.position, run.length)
    try:
        for pos, batch in iter_batches(content):
            yield _describe_batch(content, pos, batch, run.position + pos)
            if depth > 2:
                for record in iter_records(content, pos, batch):
                    yield {
                        "type": "record",
                        "offset": record.offset,
                        "timestamp_ms": record.timestamp_ms,
                        "key": _text(record.key),
                        "value": _text(record.value),
                        "headers": [[name, _text(value)] for name, value in record.headers],
                        **((explain(record.key, record.value) if explain is not None else None) or {}),
                    }
    except ProtocolError as error:
        yield {"type": "damage", "path": path, "position": run.position, "message": str(error)}


def _describe_batch(content: bytes, pos: int, batch: BatchHeader, position: int) -> dict[str, Any]:
    return {
        "type": "batch",
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "size": batch.size_bytes,
        "leader_epoch": batch.leader_epoch,
        "compression": batch.compression.name.lower(),
        "max_timestamp_ms": batch.max_timestamp_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "crc_ok": crc_matches(content, pos, batch),
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")

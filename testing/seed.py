"""Records from files, for a test to begin with.

- A recording made by `ottla record`: as it was recorded, with its topics and partitions.
- `.jsonl`, `.ndjson`, `.json`: one JSON object per line. It has `value` and optionally `topic`, `key`, `headers`,
  `partition` and `timestamp`; or `payload`, as `kcat -J` prints records. Any other object is a record's value.
- `.csv`: a header line, then one record per line. The column `key` is the key, `value` the value; without a column
  `value`, the row itself is the value, as a JSON object.
- Anything else: one record per line, as for `kcat -P`, with `key_delimiter` (as in `kcat -K`) between key and value.

If the file does not name the topic, it is the one that is given, or else the file's name without its ending.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ottla.client.recording import RecordingError, is_recording, parse_recording
from ottla.kproto.records import NO_TIMESTAMP
from ottla.testing.record import Record, encode

_FIELDS = frozenset({"topic", "key", "value", "headers", "partition", "timestamp", "offset"})


@dataclass(slots=True)
class Seed:
    """What a file holds: records, and the topics that it needs, with their partitions."""

    records: list[Record]
    topics: dict[str, int] = field(default_factory=dict)


class SeedError(ValueError):
    """A file cannot be read as records; the text says which line and why."""


def read_seed(path: Path, topic: str | None, *, now_ms: int, key_delimiter: str | None = None) -> Seed:
    """Read a file. Records without a timestamp get one; the last one gets `now_ms`. Raises SeedError or OSError."""
    content = path.read_bytes()
    if is_recording(content):
        return _recorded(content, topic, path)
    name = topic or path.stem
    readers: Mapping[str, Callable[[bytes, str], Iterator[Record]]] = {
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".json": _json_lines,
        ".csv": _csv_rows,
    }
    reader = readers.get(path.suffix.lower())
    try:
        if reader is not None:
            return Seed(_timed(list(reader(content, name)), now_ms))
        return Seed(_timed(list(_lines(content, name, key_delimiter)), now_ms))
    except (ValueError, TypeError, KeyError) as error:
        raise SeedError(f"{path}: {error}") from error


def _recorded(content: bytes, topic: str | None, path: Path) -> Seed:
    try:
        recording = parse_recording(io.BytesIO(content))
        records = [
            Record(
                topic or entry.topic,
                entry.partition,
                entry.record.offset,
                entry.record.timestamp_ms,
                entry.record.key,
                entry.record.value,
                tuple(entry.record.headers),
            )
            for entry in recording.entries
            if entry.is_commit is None
        ]
    except RecordingError as error:
        raise SeedError(f"{path}: {error}") from error
    partitions = recording.topics if topic is None else {topic: max(recording.topics.values(), default=1)}
    return Seed(records, partitions)


def _timed(records: list[Record], now_ms: int) -> list[Record]:
    """The same records with timestamps in the order of the file, so that they are read in this order."""
    first_ms = now_ms + 1 - len(records)
    return [
        replace(record, timestamp_ms=first_ms + place) if record.timestamp_ms == NO_TIMESTAMP else record
        for place, record in enumerate(records)
    ]


def _json_lines(content: bytes, topic: str) -> Iterator[Record]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None
        if isinstance(item, dict) and "payload" in item:
            yield _from_kcat(item, topic)
        elif isinstance(item, dict) and "value" in item and item.keys() <= _FIELDS:
            yield _from_json(item, topic)
        else:
            yield Record(topic, -1, -1, NO_TIMESTAMP, None, encode(item))


def _from_json(item: Mapping[str, Any], topic: str) -> Record:
    headers = item.get("headers") or {}
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        item.get("topic", topic),
        int(item.get("partition", -1)),
        -1,
        int(item.get("timestamp", NO_TIMESTAMP)),
        encode(item.get("key")),
        encode(item["value"]),
        tuple((name, encode(value)) for name, value in pairs),
    )


def _from_kcat(item: Mapping[str, Any], topic: str) -> Record:
    flat = item.get("headers") or []
    return Record(
        item.get("topic", topic),
        int(item.get("partition", -1)),
        -1,
        int(item.get("ts", NO_TIMESTAMP)),
        encode(item.get("key")),
        encode(item["payload"]),
        tuple((name, encode(value)) for name, value in zip(flat[::2], flat[1::2], strict=True)),
    )


def _csv_rows(content: bytes, topic: str) -> Iterator[Record]:
    for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True):
        if None in row or None in row.values():
            raise ValueError("a row has more or fewer columns than the header line")
        key = row.pop("key", None)
        yield Record(topic, -1, -1, NO_TIMESTAMP, encode(key), encode(row["value"] if row.keys() == {"value"} else row))


def _lines(content: bytes, topic: str, key_delimiter: str | None) -> Iterator[Record]:
    for line in content.removesuffix(b"\n").split(b"\n"):
        key: bytes | None = None
        value = line
        if key_delimiter is not None and key_delimiter.encode() in line:
            key, _, value = line.partition(key_delimiter.encode())
        yield Record(topic, -1, -1, NO_TIMESTAMP, key, value)

"""Records out of files: what a test begins with.

- A recording of `ottla record`: as it was recorded, with its topics and partitions.
- `.jsonl`, `.ndjson`, `.json`: one JSON object a line. Either with `value` and, if wanted, `topic`, `key`, `headers`,
  `partition` and `timestamp`; or as `kcat -J` prints records, with `payload`. Any other object is a record's value.
- `.csv`: a header line, then a record each. The column `key` is the key, `value` the value; without that the row is the
  value, as a JSON object.
- Anything else: one record a line as `kcat -P` takes it, with `key_delimiter` (as `kcat -K`) between key and value.

Where the file does not say the topic, it is the one that is given, or else the file's name without its ending.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.server.recording import RecordingError, is_recording, parse_recording
from ottla.testing.record import Record, encode

_FIELDS = frozenset({"topic", "key", "value", "headers", "partition", "timestamp", "offset"})


@dataclass(slots=True)
class Seed:
    """What a file holds: records, and the topics that it wants with their partitions."""

    records: list[Record]
    topics: dict[str, int] = field(default_factory=dict)


class SeedError(ValueError):
    """A file cannot be read as records; the text says which line and why."""


def read_seed(path: Path, topic: str | None, *, now_ms: int, key_delimiter: str | None = None) -> Seed:
    """Read a file. Records without a time get `now_ms`. Raises SeedError, or OSError."""
    content = path.read_bytes()
    if is_recording(content):
        return _recorded(content, topic, path)
    name = topic or path.stem
    readers: Mapping[str, Callable[[bytes, str, int], Iterator[Record]]] = {
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".json": _json_lines,
        ".csv": _csv_rows,
    }
    reader = readers.get(path.suffix.lower())
    try:
        if reader is not None:
            return Seed(list(reader(content, name, now_ms)))
        return Seed(list(_lines(content, name, now_ms, key_delimiter)))
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


def _json_lines(content: bytes, topic: str, now_ms: int) -> Iterator[Record]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is no JSON: {error}") from None
        if isinstance(item, dict) and "payload" in item:
            yield _from_kcat(item, topic, now_ms)
        elif isinstance(item, dict) and "value" in item and item.keys() <= _FIELDS:
            yield _from_json(item, topic, now_ms)
        else:
            yield Record(topic, -1, -1, now_ms, None, encode(item))


def _from_json(item: Mapping[str, Any], topic: str, now_ms: int) -> Record:
    headers = item.get("headers") or {}
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        item.get("topic", topic),
        int(item.get("partition", -1)),
        -1,
        int(item.get("timestamp", now_ms)),
        encode(item.get("key")),
        encode(item["value"]),
        tuple((name, encode(value)) for name, value in pairs),
    )


def _from_kcat(item: Mapping[str, Any], topic: str, now_ms: int) -> Record:
    flat = item.get("headers") or []
    return Record(
        item.get("topic", topic),
        int(item.get("partition", -1)),
        -1,
        int(item.get("ts", now_ms)),
        encode(item.get("key")),
        encode(item["payload"]),
        tuple((name, encode(value)) for name, value in zip(flat[::2], flat[1::2], strict=True)),
    )


def _csv_rows(content: bytes, topic: str, now_ms: int) -> Iterator[Record]:
    for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True):
        if None in row or None in row.values():
            raise ValueError("a row has more or fewer columns than the header line")
        key = row.pop("key", None)
        yield Record(topic, -1, -1, now_ms, encode(key), encode(row["value"] if row.keys() == {"value"} else row))


def _lines(content: bytes, topic: str, now_ms: int, key_delimiter: str | None) -> Iterator[Record]:
    for line in content.removesuffix(b"\n").split(b"\n"):
        key: bytes | None = None
        value = line
        if key_delimiter is not None and key_delimiter.encode() in line:
            key, _, value = line.partition(key_delimiter.encode())
        yield Record(topic, -1, -1, now_ms, key, value)

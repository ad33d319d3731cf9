"""Recordings: records of topics in a file that people can read, compare and edit.

A JSON object a line. The first is the header, with the format's version and the topics with their partitions; each
other one is a record::

    {"ottla_recording": 1, "topics": {"orders": 3}}
    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "42", "value": "…"}

More topics may be named further on, by a line with `topics` alone, before their first records. Keys, values and header
values are text where they are UTF-8, null, or `{"base64": "…"}`. `headers`, a list of
[name, value], is left out when empty; `timestamp_type` unless it is LogAppendTime. In a recording of what is not
committed, too, the records of a transaction have `"transaction": [producer id, producer epoch]`, and there are the
markers that end it, with `"marker": "commit"` or `"abort"`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, Final, NamedTuple

from ottla.client.topic_reader import Entry, Transaction
from ottla.kproto.records import Record, TimestampType

FORMAT_VERSION: Final = 1

_MAGIC: Final = "ottla_recording"
_PREFIX: Final = b'{"ottla_recording"'
_LOG_APPEND_TIME: Final = "LogAppendTime"
_MARKERS: Final = {"commit": True, "abort": False}


class RecordingError(ValueError):
    """The file is not a recording, or a line of it is wrong; the text says which."""


class Recording(NamedTuple):
    """A recording: the topics with their partitions, and the entries, which are read as they are asked for.

    Topics that are named further on are added when the entries are read that far.
    """

    topics: dict[str, int]
    entries: Iterator[Entry]


def is_recording(start: bytes) -> bool:
    """Whether a file that begins with this is a recording."""
    return start.startswith(_PREFIX)


def write_recording(file: IO[bytes], topics: Mapping[str, int], entries: Iterable[Entry]) -> int:
    """Write a recording and return how many records it has (markers do not count)."""
    file.write(header_line(topics))
    count = 0
    for entry in entries:
        file.write(entry_line(entry))
        count += entry.is_commit is None
    return count


def parse_recording(file: IO[bytes]) -> Recording:
    """Begin to read a recording. RecordingError at once or, for a wrong line, when it is reached."""
    header = _object(file.readline(), 1)
    if header.get(_MAGIC) != FORMAT_VERSION:
        raise RecordingError("line 1 is not the header of a recording that this release reads")
    topics = _topics(header, 1)
    return Recording(topics, _entries(file, topics))


def header_line(topics: Mapping[str, int]) -> bytes:
    """The first line of a recording."""
    return _json({_MAGIC: FORMAT_VERSION, "topics": dict(topics)})


def topics_line(topics: Mapping[str, int]) -> bytes:
    """A line that names more topics, or more partitions of them."""
    return _json({"topics": dict(topics)})


def entry_line(entry: Entry) -> bytes:
    """The line of a record or marker."""
    return _json(_line(entry))


def _json(item: Mapping[str, Any]) -> bytes:
    return json.dumps(item, ensure_ascii=False).encode() + b"\n"


def _topics(line: Mapping[str, Any], number: int) -> dict[str, int]:
    topics = line.get("topics")
    if not isinstance(topics, dict) or not all(isinstance(count, int) and count > 0 for count in topics.values()):
        raise RecordingError(f"line {number} does not say how many partitions each topic has")
    return topics


def _line(entry: Entry) -> dict[str, Any]:
    record = entry.record
    line: dict[str, Any] = {
        "topic": entry.topic,
        "partition": entry.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    if entry.timestamp_type is TimestampType.LOG_APPEND_TIME:
        line["timestamp_type"] = _LOG_APPEND_TIME
    if entry.transaction is not None:
        line["transaction"] = list(entry.transaction)
    if entry.is_commit is not None:
        line["marker"] = "commit" if entry.is_commit else "abort"
        return line
    line["key"] = readable(record.key)
    line["value"] = readable(record.value)
    if record.headers:
        line["headers"] = [[name, readable(value)] for name, value in record.headers]
    return line


def _entries(file: IO[bytes], topics: dict[str, int]) -> Iterator[Entry]:
    for number, text in enumerate(file, 2):
        if not text.strip():
            continue
        line = _object(text, number)
        if "topics" in line:
            topics |= _topics(line, number)
            continue
        try:
            yield _entry(line)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordingError(f"line {number} is not a record: {error!r}") from error


def _entry(line: Mapping[str, Any]) -> Entry:
    marker = line.get("marker")
    transaction = line.get("transaction")
    record = Record(
        int(line.get("offset", -1)),
        int(line["timestamp"]),
        _raw(line.get("key")),
        _raw(line.get("value")),
        tuple((str(name), _raw(value)) for name, value in line.get("headers", ())),
    )
    is_append_time = line.get("timestamp_type") == _LOG_APPEND_TIME
    return Entry(
        str(line["topic"]),
        int(line["partition"]),
        record,
        TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
        None if transaction is None else Transaction(*map(int, transaction)),
        None if marker is None else _MARKERS[marker],
    )


def _object(text: bytes, number: int) -> dict[str, Any]:
    try:
        item = json.loads(text)
    except ValueError as error:
        raise RecordingError(f"line {number} is not JSON: {error}") from None
    if not isinstance(item, dict):
        raise RecordingError(f"line {number} is not a JSON object")
    return item


def readable(data: bytes | None) -> Any:
    """A key or value as a line has it: text, null, or `{"base64": …}`."""
    if data is None:
        return None
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _raw(item: Any) -> bytes | None:
    if item is None:
        return None
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, dict) and item.keys() == {"base64"}:
        return b64decode(item["base64"], validate=True)
    raise TypeError(f"{item!r} is neither text nor base64")

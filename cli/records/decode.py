"""`ottla decode`: show bytes of the Kafka protocol as messages, or a recording of records as lines."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ottla.cli.folders.internal_records import explain
from ottla.kproto import decode
from ottla.kproto.decode import configure

if TYPE_CHECKING:
    from ottla.client.topic_reader import Entry

__all__ = ["configure", "run"]

_START_BYTES: Final = 100


def run(arguments: argparse.Namespace) -> int:
    """Print what the input holds; 1 if any of it could not be read."""
    from ottla.client.recording import RecordingError, is_recording, parse_recording

    if not os.path.isfile(arguments.input):
        return decode.run(arguments)
    with open(arguments.input, "rb") as file:
        if not is_recording(file.read(_START_BYTES)):
            return decode.run(arguments)
        file.seek(0)
        if arguments.json:
            sys.stdout.buffer.writelines(file)  # already one JSON object per line
            return 0
        try:
            for entry in parse_recording(file).entries:
                sys.stdout.write(f"{_shown(entry)}\n")
        except RecordingError as error:
            sys.stderr.write(f"unreadable: {error}\n")
            return 1
    return 0


def _shown(entry: Entry) -> str:
    record = entry.record
    time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    place = f"{time} {entry.topic}-{entry.partition}" + (f" at {record.offset}" if record.offset >= 0 else "")
    if entry.is_commit is not None:
        return f"{place}: {'commit' if entry.is_commit else 'abort'}"
    said = explain(entry.topic, record.key, record.value)
    if said is not None:
        return f"{place}: {said['record']} {json.dumps(said['key'])} = {json.dumps(said['value'])}"
    headers = "".join(f" {name}={_text(value)}" for name, value in record.headers)
    return f"{place}: {_text(record.key)} = {_text(record.value)}{headers}"


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return f"0x{bytes(data).hex()}"
    return text if text.isprintable() else ascii(text)

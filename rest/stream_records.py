"""One record of version 3, checked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from ottla.rest.errors import RestError, bad_request
from ottla.rest.producing import NewRecord
from ottla.rest.values import Format, base64_bytes, encoder, parsed

_FIELDS: Final = frozenset({"partition_id", "headers", "key", "value", "timestamp"})
_DATUM_FIELDS: Final = frozenset({"type", "data"})
_FORMS: Final = {form.name: form for form in (Format.BINARY, Format.JSON, Format.STRING)}
_MAX_HEADERS: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Datum(NamedTuple):
    """A key or a value."""

    form: Format
    data: bytes | None


class RecordGiven(NamedTuple):
    """A record as it was sent."""

    key: Datum | None
    value: Datum | None
    partition: int | None
    timestamp_ms: int | None
    headers: tuple[tuple[str, bytes | None], ...]

    def record(self, now_ms: int) -> NewRecord:
        """The record to append."""
        return NewRecord(
            None if self.key is None else self.key.data,
            None if self.value is None else self.value.data,
            self.partition,
            now_ms if self.timestamp_ms is None else self.timestamp_ms,
            self.headers,
        )


def record_given(text: bytes, partition_count: int) -> RecordGiven:
    """A record of a topic with so many partitions. Raises RestError 400, 40402 or 422."""
    body = parsed(text)
    if not isinstance(body, dict):
        raise bad_request("A record is no object")
    _check_fields(body, _FIELDS)
    partition = body.get("partition_id")
    if partition is not None:
        if type(partition) is not int:
            raise bad_request("partition_id is no number")
        if not 0 <= partition < partition_count:
            raise RestError(40402, "This server does not host this topic-partition.")
    return RecordGiven(
        _datum(body.get("key"), "key"),
        _datum(body.get("value"), "value"),
        partition,
        _timestamp_ms(body.get("timestamp")),
        _headers(body.get("headers")),
    )


def time_text(timestamp_ms: int) -> str:
    """A time as version 3 writes it."""
    return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_fields(given: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in given:
        if name not in known:
            raise bad_request(f"Unrecognized field: {name[:100]}")


def _datum(given: Any, part: str) -> Datum | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise bad_request(f"{part} is no object")
    _check_fields(given, _DATUM_FIELDS)
    kind = given.get("type")
    form = _FORMS.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise bad_request(f"the type of {part} is none of {', '.join(_FORMS)}")
    return Datum(form, encoder(form)(given.get("data")))


def _timestamp_ms(given: Any) -> int | None:
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given)
        milliseconds = (found - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError, OverflowError):  # TypeError: it is no text, or has no zone
        raise bad_request("timestamp is no time such as 2026-01-31T12:00:00Z") from None
    if milliseconds < 0:
        raise bad_request("timestamp is before 1970")
    return milliseconds


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > _MAX_HEADERS:
        raise bad_request(f"headers are no list of up to {_MAX_HEADERS}")
    found = []
    for one in given:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not one.keys() <= {"name", "value"}:
            raise bad_request("a header is no object with name and value")
        value = one.get("value")
        found.append((_name(one["name"]), None if value is None else base64_bytes(value)))
    return tuple(found)


def _name(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise bad_request("the name of a header cannot be written as UTF-8") from None
    return text

"""Bodies of requests to consumers, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.offsets import TopicPartition
from ottla.rest.consumers.consumer import Settings
from ottla.rest.consumers.group import Committed
from ottla.rest.errors import invalid_consumer_config, unprocessable
from ottla.rest.limits import MAX_NAMED, MAX_WAIT_MS
from ottla.rest.values import Format, parsed

FORMS: Final = {
    form.value: form for form in (Format.BINARY, Format.JSON, Format.AVRO, Format.JSON_SCHEMA, Format.PROTOBUF)
}
_RESETS: Final = ("earliest", "latest", "none")
_DEFAULT_TIMEOUT_MS: Final = 1_000
_MAX_NAME_LENGTH: Final = 249
_MAX_METADATA_LENGTH: Final = 4_096
_MAX_PARTITION: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1
_CONFIGS: Final = frozenset(
    {
        "id",
        "name",
        "format",
        "auto.offset.reset",
        "auto.commit.enable",
        "fetch.min.bytes",
        "consumer.request.timeout.ms",
    }
)


def new_consumer(data: bytes) -> tuple[str | None, Settings]:
    """The name and the settings of a new consumer. Raises RestError 400, 422 or 42204."""
    body = _object(data)
    for config in body:
        if config not in _CONFIGS:
            raise unprocessable(f"Unrecognized field: {config[:100]}")
    name = body.get("name") if body.get("id") is None else body["id"]
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= _MAX_NAME_LENGTH):
        raise invalid_consumer_config(f"name is no text of up to {_MAX_NAME_LENGTH} characters")
    form = FORMS.get(str(body.get("format") or Format.BINARY.value).lower())
    if form is None:
        raise invalid_consumer_config(f"format is none of {', '.join(FORMS)}")
    reset = str(body.get("auto.offset.reset") or "latest").lower()
    if reset not in _RESETS:
        raise invalid_consumer_config(f"auto.offset.reset is none of {', '.join(_RESETS)}")
    commits = str(body.get("auto.commit.enable", True)).lower()
    if commits not in ("true", "false"):
        raise invalid_consumer_config("auto.commit.enable is neither true nor false")
    timeout = str(body.get("consumer.request.timeout.ms", _DEFAULT_TIMEOUT_MS))
    if not (timeout.isascii() and timeout.isdigit() and len(timeout) < 10 and int(timeout) <= MAX_WAIT_MS):
        raise invalid_consumer_config(f"consumer.request.timeout.ms is not between 0 and {MAX_WAIT_MS}")
    return name, Settings(form, reset, commits == "true", int(timeout))


def topics(data: bytes) -> list[str]:
    """The topics to subscribe to. Raises RestError 400 or 422."""
    body = _object(data)
    if body.get("topic_pattern") is not None:
        raise unprocessable("topic_pattern is not served: name the topics")
    names = _list(body, "topics")
    for name in names:
        if not isinstance(name, str) or not name:
            raise unprocessable("a topic is no text")
    return names


def partitions(data: bytes) -> list[TopicPartition]:
    """The partitions that a body names. Raises RestError 400 or 422."""
    return [_partition(it) for it in _list(_object(data), "partitions")]


def offsets(data: bytes) -> dict[TopicPartition, Committed]:
    """The offsets that a body names, with metadata. Raises RestError 400 or 422."""
    found = {}
    for it in _list(_object(data), "offsets"):
        part, offset, metadata = _partition(it), it.get("offset"), it.get("metadata") or ""
        if type(offset) is not int or not 0 <= offset <= _MAX_OFFSET:
            raise unprocessable("an offset is no number, or less than 0")
        if not isinstance(metadata, str) or len(metadata) > _MAX_METADATA_LENGTH:
            raise unprocessable(f"metadata is no text of up to {_MAX_METADATA_LENGTH} characters")
        found[part] = Committed(offset, metadata)
    return found


def _object(data: bytes) -> dict[str, Any]:
    body = parsed(data) if data.strip() else {}
    if not isinstance(body, dict):
        raise unprocessable("The request is no object")
    return body


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    given = body.get(name)
    if not isinstance(given, list) or len(given) > MAX_NAMED:
        raise unprocessable(f"{name} is no list of up to {MAX_NAMED}")
    return given


def _partition(given: Any) -> TopicPartition:
    if not isinstance(given, dict):
        raise unprocessable("a partition is no object with topic and partition")
    topic, index = given.get("topic"), given.get("partition")
    if not isinstance(topic, str) or not topic or type(index) is not int or not 0 <= index <= _MAX_PARTITION:
        raise unprocessable("a partition is no object with topic and partition")
    return TopicPartition(topic, index)

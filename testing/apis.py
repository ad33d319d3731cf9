"""Kafka's names of APIs, as tests write them, and the topics that requests name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import ZERO_UUID
from ottla.settings.sources import did_you_mean

if TYPE_CHECKING:
    from ottla.kproto.schema import Struct
    from ottla.metadata.image import MetadataImage


def api_key(name: str) -> ApiKey:
    """The API of that name: `OffsetCommit`, `offset_commit`. Raises ValueError if there is none."""
    wanted = name.replace("_", "").lower()
    for key in ApiKey:
        if key.name.replace("_", "").lower() == wanted:
            return key
    hint = did_you_mean(name, (key.kafka_name for key in ApiKey))
    hint = hint or " Its names are Kafka's, such as 'Produce' and 'OffsetCommit'."
    raise ValueError(f"there is no API {name!r}.{hint}")


def topic_name(item: Any) -> tuple[object, object]:
    """The name or id by which a request or an answer refers to a topic."""
    if isinstance(item, str):
        return item, ZERO_UUID
    name = getattr(item, "name", None) or getattr(item, "topic", None) or ""
    return name, getattr(item, "topic_id", ZERO_UUID)


def named_topics(request: Struct, version: int, image: MetadataImage) -> tuple[str, ...]:
    """The topics that a request names, by name or by id; an id that is not known is left out."""
    found: dict[str, None] = {}
    for field in request.FIELDS:
        if field.kind != "array" or "topic" not in field.name or not field.versions.includes(version):
            continue
        for item in getattr(request, field.name) or ():
            name, topic_id = topic_name(item)
            if not name and topic_id != ZERO_UUID:
                topic = image.topic_by_id(topic_id)  # type: ignore[arg-type]
                name = "" if topic is None else topic.name
            if isinstance(name, str) and name:
                found[name] = None
    return tuple(found)

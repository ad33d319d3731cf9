"""The data of the pages of schemas: subjects, two versions side by side, and the topics that use them."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.schemas.codec import PROTOBUF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.metadata.image import MetadataImage
    from ottla.registry.registry import Registry
    from ottla.registry.store.state import State, Version
    from ottla.server.broker import Broker

MAX_COMPARED_LINES: Final = 1_000
"""Of each version: the time that a comparison takes grows with the square of it."""

MAX_SHOWN_LINES: Final = 5_000
_PARTS: Final = ("value", "key")


class Line(NamedTuple):
    """A row of two texts side by side; None where one of them has no line. `change` is same, changed, less or more."""

    left: str | None
    right: str | None
    change: str


class TopicUse(NamedTuple):
    """A topic whose keys or values have a subject's schemas, and how they are validated."""

    topic: str
    part: str
    validation: str


def registry_of(broker: Broker) -> Registry | None:
    """The registry in the broker's process, if it serves one."""
    source = broker.codecs.source
    if source is None:
        return None
    from ottla.registry.node import OwnSchemas

    return source.registry if isinstance(source, OwnSchemas) else None


def text_of(version: Version) -> str:
    """A schema as people read it: JSON with a line for each item."""
    text = version.content.text
    if version.content.kind == PROTOBUF:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def side_by_side(old: str, new: str) -> list[Line]:
    """Two texts line by line. Takes long for long ones: call it in a worker thread."""
    left, right = old.splitlines()[:MAX_SHOWN_LINES], new.splitlines()[:MAX_SHOWN_LINES]
    if max(len(left), len(right)) > MAX_COMPARED_LINES:
        return _rows(left, right, "same" if left == right else "changed")
    lines: list[Line] = []
    for what, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        lines += _rows(left[a:b], right[c:d], "same" if what == "equal" else "changed")
    return lines


def _rows(left: Sequence[str], right: Sequence[str], change: str) -> list[Line]:
    rows = []
    for number in range(max(len(left), len(right))):
        one = left[number] if number < len(left) else None
        other = right[number] if number < len(right) else None
        rows.append(Line(one, other, "more" if one is None else "less" if other is None else change))
    return rows


def topic_uses(image: MetadataImage, subject: str) -> list[TopicUse]:
    """The topics that use a subject by its name, as Confluent's serializers do by default."""
    found = []
    for part in _PARTS:
        name = subject.removesuffix(f"-{part}")
        topic = image.topics.get(name) if name != subject else None
        if topic is not None:
            validation = topic.configs.get(f"ottla.{part}.schema.validation", "none")
            found.append(TopicUse(name, part, validation))
    return found


def referring(state: State, versions: Sequence[Version]) -> list[Version]:
    """The versions of other subjects that refer to one of these."""
    found = [it for version in versions for it in state.referencing(version.subject, version.version)]
    return sorted(set(found), key=lambda it: (it.subject, it.version))

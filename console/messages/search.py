"""A search in a topic: where to begin, and the conditions on messages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.json_condition import Condition, parse_condition
from ottla.console.messages.decoding import Format, tree_of
from ottla.console.messages.times import read_time_ms
from ottla.console.parameters import as_integer, integer, text

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.messages.reading import Keep, Message
    from ottla.console.messages.schemas import Schemas
    from ottla.metadata.image import TopicImage

MAX_POSITIONS: Final = 256
"""Partitions whose positions an address names, and so those that the live view follows."""

MAX_POSITIONS_TEXT: Final = 8_192


class Start(Enum):
    """The start of a page."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"


class Search(NamedTuple):
    """A search in a form. `at` are the positions of a page that follows another one, `first` its first partition."""

    start: Start
    partition: int | None
    offset: int
    time: str
    key: str
    contains: str
    header: str
    json: str
    format: Format
    at: Mapping[int, int]
    first: int = 0

    @classmethod
    def of(cls, request: Request, topic: TopicImage) -> Search:
        """The search in an address."""
        start = next((each for each in Start if each.value == request.query_params.get("start")), Start.NEWEST)
        partition = integer(request, "partition", -1)
        return cls(
            start,
            partition if 0 <= partition < len(topic.partitions) else None,
            max(0, integer(request, "offset", 0)),
            text(request, "time"),
            text(request, "key"),
            text(request, "contains"),
            text(request, "header"),
            text(request, "json"),
            Format.named(text(request, "format")),
            read_positions(text(request, "at", MAX_POSITIONS_TEXT)),
            max(0, integer(request, "first", 0)),
        )

    @property
    def is_backward(self) -> bool:
        return self.start is Start.NEWEST

    @property
    def has_filter(self) -> bool:
        return bool(self.key or self.contains or self.header or self.json)

    @property
    def query(self) -> dict[str, Any]:
        """The query of an address that repeats the search from its beginning."""
        return {
            "start": self.start.value,
            "partition": self.partition,
            "offset": self.offset if self.start is Start.OFFSET else None,
            "time": self.time if self.start is Start.TIME else None,
            "key": self.key,
            "contains": self.contains,
            "header": self.header,
            "json": self.json,
            "format": self.format.value if self.format is not Format.AUTO else None,
        }

    def begins_at_ms(self, now_ms: int) -> int | None:
        """The time that it begins at, None for the first message. Raises TimeError."""
        written = self.time.strip()
        if self.start is not Start.TIME or not written:
            return None
        number = as_integer(written, -1)
        return number if number >= 0 else read_time_ms(written, now_ms)


def keep_of(search: Search, topic: TopicImage, schemas: Schemas) -> Keep:
    """Which messages a search wants. Raises ConditionError."""
    key, contained = as_bytes(search.key), as_bytes(search.contains)
    condition = parse_condition(search.json.strip()) if search.json.strip() else None
    header_name, _, header_value = (part.strip() for part in search.header.partition(":"))
    header_bytes = as_bytes(header_value)

    async def keep(message: Message) -> bool:
        record = message.record
        if message.header.is_control:
            return False
        if search.key and record.key != key:
            return False
        if search.contains and contained not in (record.value or b"") and contained not in (record.key or b""):
            return False
        if header_name and not any(
            name == header_name and header_bytes in (value or b"") for name, value in record.headers
        ):
            return False
        return condition is None or await _holds(condition, record.value, topic, schemas)

    return keep if search.has_filter else every


async def every(_: Message) -> bool:
    """Keeps all messages."""
    return True


async def _holds(condition: Condition, data: bytes | None, topic: TopicImage, schemas: Schemas) -> bool:
    tree = None if data is None else await tree_of(data, schemas, schemas.value_type(topic.name))
    return tree is not None and condition.holds(tree.value)


def as_bytes(written: str) -> bytes:
    """The bytes that a person has written: as text, or as digits after `0x`."""
    if written.startswith("0x"):
        try:
            return bytes.fromhex(written[2:])
        except ValueError:
            pass
    return written.encode("utf-8", "replace")


def read_positions(written: str) -> dict[int, int]:
    """`0-17_3-4`: offset 17 of partition 0, offset 4 of partition 3."""
    positions = {}
    for part in written.split("_")[:MAX_POSITIONS]:
        partition, dash, offset = part.partition("-")
        if dash and as_integer(partition, -1) >= 0 and as_integer(offset, -1) >= 0:
            positions[int(partition)] = int(offset)
    return positions


def write_positions(positions: Mapping[int, int]) -> str:
    """The inverse of `read_positions`."""
    return "_".join(f"{partition}-{offset}" for partition, offset in positions.items())

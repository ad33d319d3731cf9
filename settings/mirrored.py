"""The topic setting `ottla.mirror`: whether the topic is a copy of another cluster's, and of which."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

MIRROR_SETTING: Final = "ottla.mirror"


class Mirroring(Enum):
    """The relation of a topic to the one that it was copied from."""

    NO = ""
    """A topic like any other."""
    FOLLOWING = "following"
    """It gets what the source has, and nothing else."""
    ENDING = "ending"
    """It gets nothing from the source any more, and nothing from clients yet: open transactions are being ended."""


class Mirrored(NamedTuple):
    """The setting, read. `source_id` is the source topic's id."""

    mirroring: Mirroring
    source_id: UUID = UUID(int=0)

    def __str__(self) -> str:
        text = urlsafe_b64encode(self.source_id.bytes).decode().rstrip("=")
        return f"{self.mirroring.value} {text}" if self.mirroring is not Mirroring.NO else ""


NOT_MIRRORED: Final = Mirrored(Mirroring.NO)


def parse_mirrored(text: str) -> Mirrored:
    """Raises ValueError unless the text is one that `Mirrored` writes."""
    if not text:
        return NOT_MIRRORED
    word, _, source_id = text.partition(" ")
    return Mirrored(Mirroring(word), UUID(bytes=urlsafe_b64decode(source_id + "==")))


def check_mirror(text: str) -> None:
    """The check of the setting."""
    try:
        parse_mirrored(text)
    except ValueError:
        raise ValueError("write following or ending, and the source topic's id") from None


def mirrored(configs: Mapping[str, str]) -> Mirrored:
    """The mirroring in a topic's own configs; a value that cannot be parsed counts as not set."""
    try:
        return parse_mirrored(configs.get(MIRROR_SETTING, "").strip())
    except ValueError:
        return NOT_MIRRORED

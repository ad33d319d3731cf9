"""Ranges of message versions, written as Kafka writes them: `"3-13"`, `"9+"`, `"4"`, `"none"`."""

from __future__ import annotations

from typing import NamedTuple

OPEN_END = 32767
"""The highest version an int16 can carry: the upper end of an open range such as `"9+"`."""


class VersionRange(NamedTuple):
    """An inclusive range of versions; empty when `lowest > highest`."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read Kafka's notation. Raises ValueError for anything else."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), OPEN_END)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def includes(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def intersection(self, other: VersionRange) -> VersionRange:
        common = VersionRange(max(self.lowest, other.lowest), min(self.highest, other.highest))
        return common if common.lowest <= common.highest else NO_VERSIONS

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == OPEN_END:
            return f"{self.lowest}+"
        return f"{self.lowest}" if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = VersionRange(0, -1)

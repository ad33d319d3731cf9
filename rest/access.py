"""Who asks, and what they may do. A server that has users says so; without one everybody may do everything."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol


class Right(Enum):
    """What one may do to a topic, or to a subject, which is protected as the topic `subject:` and its name."""

    DESCRIBE = "describe"
    READ = "read"
    WRITE = "write"
    SEE_SETTINGS = "see the settings of"


class Caller(Protocol):
    """Somebody who was let in."""

    def may(self, right: Right, topic: str) -> bool:
        """Whether they may do this; for what is left out of an answer."""

    def require(self, right: Right, topic: str) -> None:
        """RestError 40301 if they may not."""

    def may_create(self, topic: str) -> bool:
        """Whether a topic that they write to is created if it does not exist."""

    @property
    def principal(self) -> str:
        """Who they are, as `User:name`."""

    def require_group(self, group_id: str) -> None:
        """RestError 40301 if they may not read as members of a group."""

    def may_see_group(self, group_id: str) -> bool:
        """Whether they may describe a group."""

    async def has_produced(self, size_bytes: int) -> None:
        """Return once they are within their quota of bytes a second again."""

    async def has_consumed(self, size_bytes: int) -> None:
        """The same for what they were sent."""

    async def has_worked(self, seconds: float) -> None:
        """The same for the time that the node has worked for them; a second at most, because it is spent already."""


class Access(Protocol):
    """Lets callers in."""

    async def caller(self, headers: Mapping[str, str], host: str, certificate: str | None = None) -> Caller:
        """Who sends a request with these headers (names in lower case) from this address, by a connection with a
        certificate of this name. RestError 401 or 429.
        """


class Everybody:
    """An `Access` and a `Caller` without any rule."""

    async def caller(self, headers: Mapping[str, str], host: str, certificate: str | None = None) -> Caller:
        return self

    def may(self, right: Right, topic: str) -> bool:
        return True

    def require(self, right: Right, topic: str) -> None:
        return None

    def may_create(self, topic: str) -> bool:
        return True

    principal = "User:ANONYMOUS"

    def require_group(self, group_id: str) -> None:
        return None

    def may_see_group(self, group_id: str) -> bool:
        return True

    async def has_produced(self, size_bytes: int) -> None:
        return None

    async def has_consumed(self, size_bytes: int) -> None:
        return None

    async def has_worked(self, seconds: float) -> None:
        return None

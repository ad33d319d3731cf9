"""The callers and their rights. A server with users implements this; without one, every caller may do everything."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol


class Right(Enum):
    """An operation on a topic, or on a subject, which is protected as the topic `subject:` and its name."""

    DESCRIBE = "describe"
    READ = "read"
    WRITE = "write"
    SEE_SETTINGS = "see the settings of"


class Caller(Protocol):
    """An admitted client, or one of a server without users."""

    def may(self, right: Right, topic: str) -> bool:
        """Whether the caller may do this; for lists that leave out the rest."""

    def require(self, right: Right, topic: str) -> None:
        """RestError 40301 if they may not."""

    def may_create(self, topic: str) -> bool:
        """Whether a write of the caller to a missing topic creates it."""

    @property
    def principal(self) -> str:
        """The principal, as `User:name`."""

    def require_group(self, group_id: str) -> None:
        """Raises RestError 40301 unless the caller may read as a member of a group."""

    def may_see_group(self, group_id: str) -> bool:
        """Whether they may describe a group."""

    async def has_produced(self, size_bytes: int) -> None:
        """Return once the caller is within its quota of bytes a second again."""

    async def has_consumed(self, size_bytes: int) -> None:
        """The same for what they were sent."""

    async def has_worked(self, seconds: float) -> None:
        """The same for the time that the node has worked for them; a second at most, because it is spent already."""


class Access(Protocol):
    """Lets callers in."""

    async def caller(self, headers: Mapping[str, str], host: str, certificate: str | None = None) -> Caller:
        """The sender of a request with these headers (names in lower case) from this address, by a connection with a
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

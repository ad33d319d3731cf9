"""The callers and their rights. A server with users implements this; without one, every caller may do everything."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

from ottla.registry.errors import RegistryError


class Right(Enum):
    """An operation on a subject, or on everything."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    READ_SETTINGS = "describe the settings of"
    CHANGE_SETTINGS = "change the settings of"


class RefusedError(RegistryError):
    """The caller is not known (401), has to wait (429) or may not do this (403); with headers for the answer."""

    def __init__(self, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code, message)
        self.headers = dict(headers or {})


PRINCIPAL: Final = "x-ottla-principal"
"""For whom a registry forwards a request whose headers do not say so."""


class Caller(Protocol):
    """An admitted client, or one of a server without users."""

    @property
    def forwarded_as(self) -> str | None:
        """The value of `PRINCIPAL` for the registry that writes; None if it can use the request's own headers."""

    def may(self, right: Right, subject: str | None) -> bool:
        """Whether they may do this to a subject, or (None) to everything; for what is left out of an answer."""

    def require(self, right: Right, subject: str | None) -> None:
        """RefusedError if they may not."""


class Access(Protocol):
    """Lets callers in."""

    async def caller(self, headers: Mapping[str, str], host: str, certificate: str | None = None) -> Caller:
        """The sender of a request with these headers (names in lower case) from this address, by a connection with a
        certificate of this name. Raises RefusedError.
        """


class Everybody:
    """An `Access` and a `Caller` without any rule."""

    async def caller(self, headers: Mapping[str, str], host: str, certificate: str | None = None) -> Caller:
        return self

    forwarded_as = None

    def may(self, right: Right, subject: str | None) -> bool:
        return True

    def require(self, right: Right, subject: str | None) -> None:
        return None

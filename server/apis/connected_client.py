"""The client at the other end of a connection."""

from __future__ import annotations

from typing import Final

from ottla.security.principal import ANONYMOUS

UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
"""Of a client that has not named its software: ClientInformation.EMPTY."""


class ConnectedClient:
    """The client's address and the names that it goes by, as Kafka's RequestContext has them."""

    __slots__ = ("client_id", "host", "listener", "port", "principal", "software")

    def __init__(self, listener: str, host: str, port: int) -> None:
        #: The name of the listener that it has connected to.
        self.listener = listener
        self.host = host
        self.port = port
        #: The client's name for itself, as the connection has found it in the last request.
        self.client_id: str | None = None
        #: The user, as `type:name`.
        self.principal = ANONYMOUS
        #: Name and version, as the client gave them with ApiVersions (KIP-511).
        self.software = UNKNOWN_SOFTWARE

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    def authenticated(self, principal: str) -> None:
        """The client has shown that it is this user."""
        self.principal = principal

    def named(self, client_id: str | None) -> None:
        """The client has named itself."""
        self.client_id = client_id

    def named_software(self, name: str, version: str) -> None:
        """The client has named its software."""
        self.software = (name, version)

    def log_keys(self, error: Exception | None = None) -> dict[str, object]:
        """The keys of log lines about the connection."""
        keys: dict[str, object] = {"client": repr(self), "client_id": self.client_id, "listener": self.listener}
        return keys if error is None else {**keys, "error": str(error)}

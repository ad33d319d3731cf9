"""PLAIN (RFC 4616): the client sends user and password.

Kafka's counterpart is org.apache.kafka.common.security.plain.internals.PlainSaslServer, whose messages these are.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.security.credentials import Credentials
from ottla.security.errors import AuthenticationFailedError, InvalidCredentialsError


class PlainExchange:
    """One message, and an empty answer if the password is right."""

    def __init__(self, credentials: Credentials, configured: Mapping[str, str]) -> None:
        self._credentials = credentials
        self._configured = configured
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.is_token_authenticated = False

    async def step(self, message: bytes) -> bytes:
        """See `Exchange.step`."""
        authorization_id, user, password, *_ = (*message.decode("utf-8", "replace").split("\0"), "", "", "")
        if not user:
            raise InvalidCredentialsError("no user name was given")
        if not password:
            raise InvalidCredentialsError("no password was given")
        if not await self._credentials.has_password(user, password, self._configured):
            raise AuthenticationFailedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""

"""OAUTHBEARER (RFC 7628): the client shows a token that somebody else has issued.

Kafka's counterpart is org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer, whose messages
these are. A token that is refused is answered with a status in JSON; the client acknowledges that with one byte, and
then the authentication has failed.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple, Protocol

from ottla.security.errors import AuthenticationFailedError, InvalidCredentialsError
from ottla.storage.clock import Clock

#: A token may list the groups that its user is in.
MAX_TOKEN_MESSAGE_BYTES: Final = 65_536

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)
_READ: Final = b"\x01"


class AccessToken(NamedTuple):
    """The content of a valid token."""

    name: str
    expires_at_ms: int


class TokenRefusedError(Exception):
    """A token is not good. The text is for the log; clients are told the status, and which scope is missing."""

    def __init__(self, reason: str, *, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope

    @property
    def answer(self) -> str:
        """As Kafka writes it."""
        scope = "" if self.scope is None else f', "scope":{json.dumps(self.scope)}'
        return f'{{"status":"{self.status}"{scope}}}'


class TokenValidator(Protocol):
    """Decides about tokens; one for all connections of a listener."""

    async def validate(self, token: str) -> AccessToken:
        """Validate a token and return its content; raises TokenRefusedError."""
        ...

    @property
    def clock(self) -> Clock:
        """The time that tokens are compared with."""
        ...


class OAuthBearerExchange:
    """One message with the token, and an empty answer if it is good."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: TokenRefusedError | None = None
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.is_token_authenticated = False

    async def step(self, message: bytes) -> bytes:
        """See `Exchange.step`."""
        if self._refusal is not None:
            if message == _READ:
                raise AuthenticationFailedError(self._refusal.answer, reason=str(self._refusal))
            raise InvalidCredentialsError(f"a second message after a token that was refused: {self._refusal}")
        authorization_id, token = _parsed(message)
        try:
            found = await self._validator.validate(token)
        except TokenRefusedError as error:
            self._refusal = error
            return error.answer.encode()
        if authorization_id not in (None, found.name):
            raise AuthenticationFailedError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({found.name})"
            )
        self.user = found.name
        self.lifetime_ms = max(0, found.expires_at_ms - self._validator.clock.time_ms())
        return b""


def _parsed(message: bytes) -> tuple[str | None, str]:
    """Whom the client wants to act as, if it says so, and its token."""
    match = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if match is None:
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    return match["authorization_id"], auth["token"]

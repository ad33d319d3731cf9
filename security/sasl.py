"""One connection's authentication: what its client may ask for now, and what it is answered. No sockets.

The rules are those of Kafka's SaslServerAuthenticator:

| state | takes | then |
|---|---|---|
| first | ApiVersions, once | handshake |
| first, handshake | SaslHandshake | the mechanism's messages, or failed |
| messages (after SaslHandshake v1) | SaslAuthenticate; anything else is ILLEGAL_SASL_STATE | complete, or failed |
| raw messages (after SaslHandshake v0) | bytes without a header | complete, or failed |
| wrong mechanism (KIP-368) | nothing: the next request ends the connection | |
| complete | everything; SaslHandshake starts over where sessions end | |
| failed | nothing: the answer is the last one | |

A refusal is sent `connection.failed.authentication.delay.ms` after the request, whatever the reason, so that nobody can
see how long the check took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from math import inf
from typing import Final, NamedTuple

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.runtime.errors import CloseConnectionError
from ottla.security.errors import AuthenticationFailedError, InvalidCredentialsError
from ottla.security.mechanism import MAX_MESSAGE_BYTES, Exchange
from ottla.security.principal import ANONYMOUS, user

#: A client has to be done by then.
_AUTHENTICATION_SECONDS: Final = 30.0
_MIN_SECONDS_BETWEEN: Final = 1.0
_FIRST_VERSION_WITH_AUTHENTICATE: Final = 1
_FIRST_VERSION_WITH_LIFETIME: Final = 1


class State(Enum):
    """See the table above."""

    FIRST = auto()
    HANDSHAKE = auto()
    MESSAGES = auto()
    RAW_MESSAGES = auto()
    WRONG_MECHANISM = auto()
    COMPLETE = auto()
    FAILED = auto()


class OfferedMechanism(NamedTuple):
    """A mechanism of a listener: how an exchange begins, how long a session lives (0: forever, or as long as what the
    client has shown), and how long a message may be."""

    begin: Callable[[], Exchange]
    max_reauth_ms: int = 0
    max_message_bytes: int = MAX_MESSAGE_BYTES


class SaslOffer(NamedTuple):
    """The SASL settings of a listener."""

    mechanisms: Mapping[str, OfferedMechanism]
    failure_delay_seconds: float
    max_frame_bytes: int
    seconds: float = _AUTHENTICATION_SECONDS

    def begin(self) -> Sasl:
        """For a new connection."""
        return Sasl(self)


class Answer(NamedTuple):
    """The answer to a SaslAuthenticate."""

    code: ErrorCode
    message: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0


class Sasl:
    """The authentication of one connection, from its first request on."""

    def __init__(self, offer: SaslOffer) -> None:
        self._offer = offer
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._session_ends_at = inf
        self._credential_lifetime_ms: int | None = None
        self._began_again_at = -inf
        self._has_principal = False
        self.state = State.FIRST
        self.principal = ANONYMOUS
        #: Whether the client has shown a delegation token, with which it cannot get another one.
        self.is_token_authenticated = False
        #: Why it failed, for the log.
        self.failure = ""

    @property
    def is_complete(self) -> bool:
        return self.state is State.COMPLETE

    @property
    def has_failed(self) -> bool:
        return self.state is State.FAILED

    @property
    def takes_raw_messages(self) -> bool:
        """Whether the client's next message has no request's header."""
        return self.state is State.RAW_MESSAGES

    @property
    def mechanisms(self) -> list[str]:
        return list(self._offer.mechanisms)

    @property
    def max_frame_bytes(self) -> int:
        """How long a request may be until the authentication is complete."""
        return self._offer.max_frame_bytes

    @property
    def seconds(self) -> float:
        """How long the client may take."""
        return self._offer.seconds

    def admit(self, key: ApiKey) -> ErrorCode:
        """NONE if a request may be handled in this state, or what it is answered instead; then the connection ends.

        Raises CloseConnectionError where Kafka closes without an answer.
        """
        if self.state is State.MESSAGES:
            if key is ApiKey.SASL_AUTHENTICATE:
                return ErrorCode.NONE
            self._fail(f"{key.name} came in the middle of the authentication")
            return ErrorCode.ILLEGAL_SASL_STATE
        if self.state in (State.FIRST, State.HANDSHAKE) and key is ApiKey.SASL_HANDSHAKE:
            return ErrorCode.NONE
        if self.state is State.FIRST and key is ApiKey.API_VERSIONS:
            return ErrorCode.NONE
        raise CloseConnectionError(f"{key.name} came where the client had to authenticate")

    def api_versions_answered(self) -> None:
        """ApiVersions was answered without an error; it may not be asked for again."""
        if self.state is State.FIRST:
            self.state = State.HANDSHAKE

    def check_session(self, key: ApiKey) -> None:
        """Raises CloseConnectionError if the session has ended and this does not begin a new one (KIP-368)."""
        if trio.current_time() > self._session_ends_at and not (
            key is ApiKey.SASL_HANDSHAKE and self._may_begin_again()
        ):
            raise CloseConnectionError("its session has ended, and it has not authenticated again")

    async def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """Begin an exchange."""
        if self.state is State.COMPLETE and not self._may_begin_again():
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self._offer.mechanisms:
            self._fail(f"the SASL mechanism {mechanism[:40]!r} is not enabled")
            await trio.sleep(self._offer.failure_delay_seconds)
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self._has_principal:
            self._began_again_at = trio.current_time()
            if mechanism != self._mechanism:
                self.state = State.WRONG_MECHANISM
                return ErrorCode.NONE
        self._mechanism = mechanism
        self._exchange = self._offer.mechanisms[mechanism].begin()
        has_headers = version >= _FIRST_VERSION_WITH_AUTHENTICATE
        self.state = State.MESSAGES if has_headers else State.RAW_MESSAGES
        return ErrorCode.NONE

    async def authenticate(self, message: bytes, version: int) -> Answer:
        """Take the client's next message."""
        assert self.state in (State.MESSAGES, State.RAW_MESSAGES)
        began = trio.current_time()
        try:
            token = await self._step(message)
        except AuthenticationFailedError as error:
            text, reason = str(error), error.reason
        except InvalidCredentialsError as error:
            again = "re-authentication" if self._has_principal else "authentication"
            text = (
                f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
            reason = f"{text} ({error})"
        else:
            lifetime_ms = self._begin_session(version) if self.is_complete else 0
            return Answer(ErrorCode.NONE, None, token, lifetime_ms)
        self._fail(reason)
        await trio.sleep_until(began + self._offer.failure_delay_seconds)
        return Answer(ErrorCode.SASL_AUTHENTICATION_FAILED, text)

    def _fail(self, reason: str) -> None:
        self.state = State.FAILED
        self.failure = reason

    async def _step(self, message: bytes) -> bytes:
        assert self._exchange is not None
        if len(message) > self._offer.mechanisms[self._mechanism].max_message_bytes:
            raise InvalidCredentialsError(f"a message of {len(message)} bytes")
        token = await self._exchange.step(message)
        if self._exchange.user is None:
            return token
        principal = user(self._exchange.user)
        self._credential_lifetime_ms = self._exchange.lifetime_ms
        is_token_authenticated = self._exchange.is_token_authenticated
        self._exchange = None
        if self._has_principal and self.principal != principal:
            named = (before.replace(":", ".", 1) for before in (self.principal, principal))
            raise AuthenticationFailedError(
                "Cannot change principals during re-authentication from {}: {}".format(*named)
            )
        self.principal = principal
        self.is_token_authenticated = is_token_authenticated
        self._has_principal = True
        self.state = State.COMPLETE
        return token

    def _begin_session(self, version: int) -> int:
        """How long the session lives, 0 forever: as the mechanism says, no longer than what the client has shown."""
        lifetime_ms = self._offer.mechanisms[self._mechanism].max_reauth_ms
        shown_ms = self._credential_lifetime_ms
        if shown_ms is not None:
            lifetime_ms = min(shown_ms, lifetime_ms) if lifetime_ms > 0 else shown_ms
        self._session_ends_at = inf
        if lifetime_ms > 0 or shown_ms is not None:
            self._session_ends_at = trio.current_time() + lifetime_ms / 1000
        return lifetime_ms if version >= _FIRST_VERSION_WITH_LIFETIME else 0

    def _may_begin_again(self) -> bool:
        return self._session_ends_at < inf and trio.current_time() - self._began_again_at >= _MIN_SECONDS_BETWEEN

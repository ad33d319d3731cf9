"""The principal of one connection, from its first request to its last.

If the proxy itself requires SASL, its `ClientLogin` decides. Otherwise SASL's messages are forwarded, and the proxy
reads in upstream's answers whom upstream has let in. Only an answer changes who the client is, and nothing overlaps:

| state | takes | then |
|---|---|---|
| open | everything | asked, by a SASL request |
| asked: a SASL request is unanswered | nothing: the next request waits | by the answer: open, exchange or failed |
| exchange: upstream expects a message | SaslAuthenticate; anything else is ILLEGAL_SASL_STATE | asked, or failed |
| failed | nothing | |

A client that authenticates again (KIP-368) keeps its principal, as its filters were made for that one. If upstream lets
it in under another one, the connection ends; Kafka refuses that by itself.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.error_responses import error_response
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.proxy.claims import Claim
from ottla.proxy.errors import NotLetInError
from ottla.proxy.login import BEFORE_LOGIN, SASL_KEYS, ClientLogin

if TYPE_CHECKING:
    from ottla.kproto.schema import Request, Response
    from ottla.kproto.types import Buffer

_MAX_FRAME_BYTES = 524_288
"""How large a request may be during an exchange: Kafka's default of sasl.server.max.receive.size."""


class State(Enum):
    """See the table above."""

    OPEN = auto()
    ASKED = auto()
    EXCHANGE = auto()
    FAILED = auto()


class Admission:
    """The identity of one client: with `login` established at the proxy, else by upstream."""

    def __init__(self, login: ClientLogin | None, principal: str) -> None:
        self.login = login
        self._principal = principal
        self._state = State.OPEN
        self._failure = ""
        self._asked: Any = None  # the SASL request that upstream has not answered
        self._claim: Claim | None = None  # the exchange under way with upstream
        self._session_ends_at = inf
        self._has_acted = False

    @property
    def is_open(self) -> bool:
        """Whether the client has authenticated, or need not."""
        return self._state is State.OPEN if self.login is None else self.login.is_complete

    @property
    def is_asked(self) -> bool:
        """Whether a SASL request is with upstream. Until it is answered, nothing else may be forwarded or served."""
        return self._state is State.ASKED

    @property
    def has_session(self) -> bool:
        """Whether upstream's session with the client is still valid, by the lifetime that upstream has announced."""
        return trio.current_time() < self._session_ends_at

    @property
    def failure(self) -> str:
        """Why the client is not let in; empty as long as it may be."""
        return self._failure if self.login is None else self.login.failure

    @property
    def principal(self) -> str:
        """The client's principal, by the answers so far."""
        return self._principal if self.login is None else self.login.principal

    def enter(self) -> str:
        """The first request after the login is let through. Returns the principal, which stays the same from now on."""
        assert self.is_open
        self._has_acted = True
        return self.principal

    def comes_alone(self, key: ApiKey) -> bool:
        """Whether all earlier requests must be answered first: they belong to the principal before this login."""
        return self.login is None and key in SASL_KEYS

    def wants(self, key: int, size_bytes: int) -> bool:
        """Whether a request of this API must be given to `take`. Raises NotLetInError if it must not come now."""
        if self.is_open:
            if key in BEFORE_LOGIN:
                return True
            if self.login is not None:
                self.login.admit(ApiKey(key))
            return False
        if size_bytes > (_MAX_FRAME_BYTES if self.login is None else self.login.max_frame_bytes):
            raise NotLetInError(f"it has sent a request of {size_bytes} bytes before it has authenticated")
        return True

    async def take(self, key: ApiKey, version: int, frame: Buffer, body_start: int) -> Response | None:
        """The answer to a request that the proxy does not forward; None if it is to be forwarded."""
        code = self._admit(key) if self.login is None else self.login.admit(key)
        if code is ErrorCode.NONE and key not in SASL_KEYS:
            return None
        request = codec.parse_request(key, version, frame, body_start)
        if code is not ErrorCode.NONE:
            return error_response(request, version, code)
        if self.login is not None:
            return await self.login.answer(request, version)
        self._ask(request)
        return None

    def answered(self, answer: Any) -> None:
        """Upstream has answered the SASL request. Raises NotLetInError if the client must not be who it is now."""
        assert self._state is State.ASKED
        asked, self._asked = self._asked, None
        if isinstance(asked, SaslHandshakeRequest):
            self._end_handshake(asked.mechanism, answer.error_code)
        elif answer.error_code:
            if self._claim is None:
                self._state = State.OPEN  # nobody expected the message, and nothing has changed
            else:
                self._fail("upstream has refused it")
        elif self._claim is None:
            raise NotLetInError("upstream has let it in without a SASL mechanism")
        elif self._claim.is_proved(bytes(answer.auth_bytes)):
            self._let_in(self._claim, answer.session_lifetime_ms)
        else:
            self._state = State.EXCHANGE

    def _admit(self, key: ApiKey) -> ErrorCode:
        if self._state is State.FAILED:
            raise NotLetInError(self._failure)
        if self._state is State.EXCHANGE and key is not ApiKey.SASL_AUTHENTICATE:
            self._fail(f"{key.name} came in the middle of the authentication")
            return ErrorCode.ILLEGAL_SASL_STATE
        return ErrorCode.NONE

    def _ask(self, request: Request) -> None:
        self._asked = request
        self._state = State.ASKED
        if self._claim is not None and not isinstance(request, SaslHandshakeRequest):
            self._claim.take(bytes(request.auth_bytes))  # type: ignore[attr-defined]

    def _end_handshake(self, mechanism: str, code: int) -> None:
        if not code:
            self._claim = Claim(mechanism)
            self._state = State.EXCHANGE
        elif code == ErrorCode.ILLEGAL_SASL_STATE:
            self._state = State.OPEN  # upstream asks nobody, or not now
        else:
            self._fail(f"upstream has refused the SASL mechanism {mechanism[:40]!r}")

    def _let_in(self, claim: Claim, session_lifetime_ms: int) -> None:
        principal = claim.principal
        if principal is None:
            raise NotLetInError("upstream has let it in by a message that the proxy cannot read")
        if self._has_acted and principal != self._principal:
            raise NotLetInError(f"it was {self._principal!r}, and upstream has let it in as {principal!r}")
        self._principal = principal
        self._session_ends_at = trio.current_time() + session_lifetime_ms / 1000 if session_lifetime_ms > 0 else inf
        self._claim = claim if claim.may_go_on else None
        self._state = State.OPEN

    def _fail(self, reason: str) -> None:
        self._state = State.FAILED
        self._failure = reason

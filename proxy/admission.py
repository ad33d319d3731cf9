"""The authentication of one connection's client, from its first request until it is let in, and when it is repeated.

If the proxy itself requires SASL, its `ClientLogin` answers. If clients authenticate to upstream, their messages are
forwarded, and the proxy reads in them whom upstream has let in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.error_responses import error_response
from ottla.kproto.errors import ErrorCode
from ottla.proxy.errors import NotLetInError
from ottla.proxy.login import BEFORE_LOGIN, SASL_KEYS, UNKNOWN, ClientLogin

if TYPE_CHECKING:
    from ottla.kproto.schema import Response
    from ottla.kproto.types import Buffer

_FIRST_SCRAM_MESSAGE: Final = "n,"
_LAST_SCRAM_ANSWER: Final = b"v="
_TOKEN: Final = "tokenauth=true"


class Admission:
    """The authentication of one client: with `login` at the proxy, else with upstream. `principal` is who it is."""

    def __init__(self, login: ClientLogin | None, principal: str) -> None:
        self.login = login
        self._principal = principal
        self._mechanism = ""
        self._claim = UNKNOWN

    @property
    def is_open(self) -> bool:
        """Whether the client has authenticated, or need not."""
        return self.login is None or self.login.is_complete

    @property
    def principal(self) -> str:
        return self._principal if self.login is None else self.login.principal

    def wants(self, key: int, size_bytes: int) -> bool:
        """Whether a request of this API must be given to `take`. Raises NotLetInError if it must not come now."""
        if self.login is None:
            return key in BEFORE_LOGIN
        if self.login.is_complete:
            if key in BEFORE_LOGIN:
                return True
            self.login.admit(ApiKey(key))
            return False
        if size_bytes > self.login.max_frame_bytes:
            raise NotLetInError(f"it has sent a request of {size_bytes} bytes before it has authenticated")
        return True

    async def take(self, key: ApiKey, version: int, frame: Buffer, body_start: int) -> Response | None:
        """The answer to a request that the proxy does not forward; None if it is to be forwarded."""
        if self.login is None:
            if key in SASL_KEYS:
                self._watch(key, codec.parse_request(key, version, frame, body_start))
            return None
        code = self.login.admit(key)
        if code is ErrorCode.NONE and key not in SASL_KEYS:
            return None
        request = codec.parse_request(key, version, frame, body_start)
        if code is not ErrorCode.NONE:
            return error_response(request, version, code)
        return await self.login.answer(request, version)

    @property
    def claim(self) -> str:
        """Who the client claims to be in the message that is forwarded now; to be given to `let_in` with the answer."""
        return self._claim

    def let_in(self, claim: str, answer: Any) -> None:
        """Upstream has answered the SaslAuthenticate that made this claim."""
        if answer.error_code:
            return
        if self._mechanism.startswith("SCRAM-") and not bytes(answer.auth_bytes).startswith(_LAST_SCRAM_ANSWER):
            return  # its challenge: the client has proved nothing yet
        self._principal = claim

    def _watch(self, key: ApiKey, request: Any) -> None:
        if key is ApiKey.SASL_HANDSHAKE:
            self._mechanism = request.mechanism
            self._claim = UNKNOWN
            return
        message = bytes(request.auth_bytes).decode("utf-8", "replace")
        if self._mechanism == "PLAIN":
            _, user, *_ = (*message.split("\0"), "", "")
            self._claim = f"User:{user}" if user else UNKNOWN
        elif self._mechanism.startswith("SCRAM-") and message.startswith(_FIRST_SCRAM_MESSAGE):
            self._claim = _scram_user(message)


def _scram_user(message: str) -> str:
    """The user in a client's first message (RFC 5802); only upstream knows the owner of a delegation token."""
    fields = message.split(",")[2:]
    if _TOKEN in fields:
        return UNKNOWN
    names = [it[2:].replace("=2C", ",").replace("=3D", "=") for it in fields if it.startswith("n=")]
    return f"User:{names[0]}" if names else UNKNOWN

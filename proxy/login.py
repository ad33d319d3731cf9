"""Authentication of clients: by SASL here, by a certificate that it has shown, or by its SASL exchange with upstream.

If the proxy itself requires SASL, a `ClientLogin` decides until it is complete; `admission.py` asks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.kproto.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.kproto.errors import ErrorCode
    from ottla.kproto.schema import Request, Response

ANONYMOUS: Final = "User:ANONYMOUS"
UNKNOWN: Final = ""
"""The principal after an authentication at upstream by a mechanism that does not name the user to a proxy."""

SASL_KEYS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
BEFORE_LOGIN: Final = SASL_KEYS | {ApiKey.API_VERSIONS}
"""The APIs that a client may call before it has authenticated. No filter sees these."""


class ClientLogin(Protocol):
    """One client's authentication at the proxy, from its first request on."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def principal(self) -> str:
        """The client's principal, once the login is complete."""
        ...

    @property
    def failure(self) -> str:
        """Why it has failed; empty while it has not."""
        ...

    @property
    def max_frame_bytes(self) -> int:
        """How large a request may be until then."""
        ...

    @property
    def seconds(self) -> float:
        """How much time the client may take."""
        ...

    def admit(self, key: ApiKey) -> ErrorCode:
        """Whether a request may come now: NONE, or the error that is its answer, after which the connection ends.

        Raises NotLetInError if it ends without an answer.
        """
        ...

    async def answer(self, request: Request, version: int) -> Response:
        """The answer to a SaslHandshake or SaslAuthenticate."""
        ...

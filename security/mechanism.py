"""The interface of a SASL mechanism's exchange, and the names of the supported mechanisms."""

from __future__ import annotations

from typing import Final, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"

MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)

#: Longer messages are refused before they are looked at: names and passwords have a few hundred bytes at most. (Tokens
#: may have more.)
MAX_MESSAGE_BYTES: Final = 4096


class Exchange(Protocol):
    """One exchange by one mechanism, on the server's side."""

    #: The user, once the exchange is complete; else None.
    user: str | None
    #: How long what the client has shown is good from then on; None: as long as the connection lives.
    lifetime_ms: int | None
    #: Whether what the client has shown is a delegation token.
    is_token_authenticated: bool

    async def step(self, message: bytes) -> bytes:
        """The answer to the client's next message.

        Raises AuthenticationFailedError or InvalidCredentialsError, after which the exchange is over.
        """
        ...

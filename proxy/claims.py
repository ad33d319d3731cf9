"""The user that a client claims to be in its messages to upstream, and the upstream answer that accepts it.

PLAIN and SCRAM name the user; other mechanisms do not reveal it to a proxy.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.proxy.login import UNKNOWN

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
_SCRAM: Final = "SCRAM-"
_LAST_SCRAM_ANSWER: Final = b"v="
_FIRST_SCRAM_MESSAGE: Final = re.compile(
    r"n,(?:a=[^,]+)?,(?:m=[^,]+,)?n=(?P<name>[^,]+),r=[^,]+(?P<extensions>(?:,[^,]*)*)", re.DOTALL
)
_SHOWS_TOKEN: Final = "tokenauth="


class Claim:
    """One SASL exchange between a client and upstream, from the mechanism on that upstream has accepted."""

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        #: The user that the client claims to be; None if the proxy cannot read it.
        self.principal: str | None = UNKNOWN
        self._has_begun = False

    def take(self, message: bytes) -> None:
        """The client's next message. The first one names the user."""
        if self._has_begun:
            return
        self._has_begun = True
        text = message.decode("utf-8", "replace")
        if self.mechanism == PLAIN:
            self.principal = _plain_user(text)
        elif self.mechanism.startswith(_SCRAM):
            self.principal = _scram_user(text)

    def is_proved(self, token: bytes) -> bool:
        """Whether upstream's answer without an error lets the client in.

        How many messages an unknown mechanism has is unknown, too: there each answer may be the last one.
        """
        if self.mechanism.startswith(_SCRAM):
            return token.startswith(_LAST_SCRAM_ANSWER)
        # By OAUTHBEARER, what is wrong with a token is told without an error, and the refusal follows (RFC 7628).
        return self.mechanism != OAUTHBEARER or not token

    @property
    def may_go_on(self) -> bool:
        """Whether another message may follow an answer that lets the client in."""
        return self.mechanism not in (PLAIN, OAUTHBEARER) and not self.mechanism.startswith(_SCRAM)


def _plain_user(message: str) -> str | None:
    _, user, *_ = (*message.split("\0"), "", "")
    return f"User:{user}" if user else None


def _scram_user(message: str) -> str | None:
    """The user in a client's first message (RFC 5802); only upstream knows the owner of a delegation token."""
    match = _FIRST_SCRAM_MESSAGE.fullmatch(message)
    if match is None:
        return None
    shown = [it.removeprefix(_SHOWS_TOKEN) for it in match["extensions"].split(",") if it.startswith(_SHOWS_TOKEN)]
    if len(shown) > 1:
        return None  # brokers differ in which of them counts
    if shown and shown[0].lower() == "true":
        return UNKNOWN
    return "User:" + match["name"].replace("=2C", ",").replace("=3D", "=")

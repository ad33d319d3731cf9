"""A client's side of SASL: what it says of itself, message by message. There is no socket here.

PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677). A SCRAM exchange is complete only when the broker has shown that it
knows the password as well.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final, Protocol

from ottla.client.errors import AuthenticationError, SecurityConfigError

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", *DIGESTS, OAUTHBEARER)

#: More would let a broker keep this machine busy for minutes.
_MAX_ITERATIONS: Final = 1_000_000


class Exchange(Protocol):
    """One exchange. `step` is called with an empty message first, then with each answer, until `is_complete`."""

    mechanism: str
    is_complete: bool

    def step(self, answer: bytes) -> bytes:
        """The next message for the broker, empty if there is none. Raises AuthenticationError."""
        ...


def begin(mechanism: str, user: str, password: str, *, is_token: bool = False) -> Exchange:
    """An exchange by one of MECHANISMS; SecurityConfigError for another.

    With `is_token`, by SCRAM, user and password are the id and the secret of a delegation token (KIP-48).
    """
    if mechanism == "PLAIN":
        return _Plain(user, password)
    if mechanism in DIGESTS:
        return _Scram(mechanism, user, password, ",tokenauth=true" if is_token else "")
    raise SecurityConfigError(f"the SASL mechanism {mechanism} is not known; known are {', '.join(MECHANISMS)}")


def begin_with_token(token: str) -> Exchange:
    """An exchange by OAUTHBEARER (RFC 7628)."""
    return _OAuthBearer(token)


class _OAuthBearer:
    mechanism = OAUTHBEARER

    def __init__(self, token: str) -> None:
        self._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        self.is_complete = False
        self._is_sent = False

    def step(self, answer: bytes) -> bytes:
        if not self._is_sent:
            self._is_sent = True
            return self._message
        self.is_complete = not answer
        # The answer says what is wrong with the token; the broker says it again, in words, when it was read.
        return b"\x01" if answer else b""


class _Plain:
    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()
        self.is_complete = False
        self._is_sent = False

    def step(self, answer: bytes) -> bytes:
        self.is_complete = self._is_sent
        self._is_sent = True
        return b"" if self.is_complete else self._message


class _Scram:
    def __init__(self, mechanism: str, user: str, password: str, extensions: str) -> None:
        self.mechanism = mechanism
        self.is_complete = False
        self._digest = DIGESTS[mechanism]
        self._password = password
        self._nonce = secrets.token_urlsafe(24)
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}{extensions}"
        self._is_begun = False
        self._server_signature: bytes | None = None

    def step(self, answer: bytes) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            return f"n,,{self._bare}".encode()
        try:
            if self._server_signature is None:
                return self._prove(answer.decode())
            self._verify(answer.decode(), self._server_signature)
        except (ValueError, KeyError):
            raise AuthenticationError(f"the broker does not speak {self.mechanism}") from None
        return b""

    def _prove(self, answer: str) -> bytes:
        fields = _fields(answer)
        salt, iterations = b64decode(fields["s"], validate=True), int(fields["i"])
        if not fields["r"].startswith(self._nonce) or not 0 < iterations <= _MAX_ITERATIONS:
            raise ValueError(answer)
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        unproven = f"c=biws,r={fields['r']}"
        signed = f"{self._bare},{answer},{unproven}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), signed, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), signed, self._digest)
        return f"{unproven},p={b64encode(proof).decode()}".encode()

    def _verify(self, answer: str, expected: bytes) -> None:
        if not hmac.compare_digest(b64decode(_fields(answer)["v"], validate=True), expected):
            raise AuthenticationError(
                "the broker does not know the password: it is a different broker, or somebody is in between"
            )
        self.is_complete = True


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}

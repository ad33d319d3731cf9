"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): the client proves that it knows the password without sending it.

Kafka's counterparts are org.apache.kafka.common.security.scram.internals.ScramSaslServer and ScramMessages. Two things
differ. An unknown user or token is refused with the last message, as a wrong password is, and not with the first, so
nobody learns which ones exist. And the proof is computed over what the client has sent, byte for byte.

With the extension `tokenauth=true` the name is the id of a delegation token, and the password its secret (KIP-48).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from typing import Final

from ottla.metadata.scram_changes import MIN_ITERATIONS, ScramCredential, ScramMechanism
from ottla.security.credentials import Credentials
from ottla.security.errors import AuthenticationFailedError, InvalidCredentialsError

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SHOWS_TOKEN: Final = re.compile(r",tokenauth=(?i:true)(?:,|$)")


class ScramExchange:
    """Two messages: the first names the user, the second proves the password."""

    def __init__(self, mechanism: ScramMechanism, credentials: Credentials) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._claimed = ""
        self._nonce = ""
        self._signed = ""
        self._credential: ScramCredential | None = None
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.is_token_authenticated = False

    async def step(self, message: bytes) -> bytes:
        """See `Exchange.step`."""
        text = message.decode("utf-8", "replace")
        return await self._begin(text) if self._credential is None else self._prove(text, self._credential)

    async def _begin(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise InvalidCredentialsError("the client's first SCRAM message is malformed")
        self.is_token_authenticated = _SHOWS_TOKEN.search(match["extensions"]) is not None
        user = match["name"].replace("=2C", ",").replace("=3D", "=")
        if match["authorization_id"] not in (None, user):
            raise AuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if self.is_token_authenticated:
            credential = await self._credentials.scram_of_token(user, self._mechanism)
        else:
            credential = self._credentials.scram(user, self._mechanism)
        if credential.iterations < MIN_ITERATIONS:
            raise InvalidCredentialsError(f"the stored credential has only {credential.iterations} iterations")
        self._claimed = user
        self._credential = credential
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._signed = f"{match['bare']},{answer},"
        return answer.encode()

    def _prove(self, text: str, credential: ScramCredential) -> bytes:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise InvalidCredentialsError("the client's last SCRAM message is malformed")
        if match["nonce"] != self._nonce:
            raise InvalidCredentialsError("the client's last SCRAM message has another nonce")
        digest = self._mechanism.digest
        signed = (self._signed + match["unproven"]).encode()
        signature = hmac.digest(credential.stored_key, signed, digest)
        proof = b64decode(match["proof"])
        if len(proof) != len(signature):
            raise InvalidCredentialsError("the proof of the password has another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key):
            raise InvalidCredentialsError("unknown user or wrong password")
        self._let_in()
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, digest))

    def _let_in(self) -> None:
        if not self.is_token_authenticated:
            self.user = self._claimed
            return
        found = self._credentials.good_token(self._claimed)
        if found is None:
            raise InvalidCredentialsError("the delegation token has ended")
        token, self.lifetime_ms = found
        self.user = token.owner.name

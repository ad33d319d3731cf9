"""Whether a JSON Web Token (RFC 7519) is good: its signature by the issuer's keys, and what it claims.

Kafka's counterpart is org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator, which uses jose4j. Tokens are
signed with RSA or elliptic curves; `none` and HMAC do not count as signatures, whatever the key set holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import trio
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from ottla.security.oauth.jwks import KeySource, PublicKey
from ottla.security.oauth.oauthbearer import MAX_TOKEN_MESSAGE_BYTES, AccessToken, TokenRefusedError
from ottla.storage.clock import Clock

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")

_MAX_WAITING: Final = 1_000


class _Registry(JWSRegistry):
    max_header_length = 16_384
    max_payload_length = MAX_TOKEN_MESSAGE_BYTES
    max_signature_length = 2_048


class _UnknownKeyError(Exception):
    """No key of the set fits what the token's header names."""


class JwtValidator:
    """Checks the tokens of one issuer, in one thread, for which a limited number may wait."""

    def __init__(
        self,
        keys: KeySource,
        clock: Clock,
        *,
        issuer: str | None,
        audiences: Collection[str],
        clock_skew_seconds: int,
        scope_claim: str,
        name_claim: str,
    ) -> None:
        self._keys = keys
        self.clock = clock
        self._issuer = issuer
        self._audiences = frozenset(audiences)
        self._skew_seconds = clock_skew_seconds
        self._scope_claim = scope_claim
        self._name_claim = name_claim
        self._registry = _Registry(algorithms=ALGORITHMS, strict_check_header=False)
        self._limiter = trio.CapacityLimiter(1)

    async def validate(self, token: str) -> AccessToken:
        """See `TokenValidator`."""
        if self._limiter.statistics().tasks_waiting >= _MAX_WAITING:
            raise TokenRefusedError(f"{_MAX_WAITING} tokens wait to be checked already")
        # The wait may be abandoned: an issuer that sends its keys slowly must not delay the close of a connection.
        claims = await trio.to_thread.run_sync(self._claims, token, limiter=self._limiter, abandon_on_cancel=True)
        return self._checked(claims)

    def _claims(self, token: str) -> Mapping[str, Any]:
        """The claims of a token that its issuer has signed."""
        try:
            try:
                return self._decoded(token, self._keys.current())
            except _UnknownKeyError:
                return self._decoded(token, self._keys.current(unknown=True))
        except _UnknownKeyError as error:
            raise TokenRefusedError(str(error)) from None
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefusedError(f"{type(error).__name__}: {error}"[:200]) from None

    def _decoded(self, token: str, keys: Collection[PublicKey]) -> Mapping[str, Any]:
        return jwt.decode(token, lambda guest: _fitting(guest.headers(), keys), registry=self._registry).claims

    def _checked(self, claims: Mapping[str, Any]) -> AccessToken:
        now = self.clock.time_ms() / 1000
        skew = self._skew_seconds
        expires = _seconds(claims, "exp", required=True)
        issued = _seconds(claims, "iat", required=True)
        not_before = _seconds(claims, "nbf", required=False)
        if now - skew >= expires:
            raise TokenRefusedError("it has expired")
        if expires < issued or expires < not_before:
            raise TokenRefusedError("it expires before it begins")
        if now + skew < not_before:
            raise TokenRefusedError("it is not valid yet")
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise TokenRefusedError("the issuer is not sasl.oauthbearer.expected.issuer")
        self._check_audience(claims.get("aud"))
        _check_scope(self._scope_claim, claims.get(self._scope_claim))
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenRefusedError(f"the claim {self._name_claim} holds no name")
        return AccessToken(name.strip(), int(expires * 1000))

    def _check_audience(self, claimed: Any) -> None:
        """One of those that are expected; whichever where none is (`allow.unverified.audience`)."""
        if not self._audiences:
            return
        named = [claimed] if isinstance(claimed, str) else claimed
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise TokenRefusedError("its audience is missing or malformed")
        if self._audiences.isdisjoint(named):
            raise TokenRefusedError("its audience is not in sasl.oauthbearer.expected.audience")


def _fitting(header: Mapping[str, Any], keys: Collection[PublicKey]) -> PublicKey:
    """The first key that a token may be signed with; raises _UnknownKeyError."""
    algorithm, key_id = str(header.get("alg")), header.get("kid")
    kind = "EC" if algorithm.startswith("ES") else "RSA"
    for key in keys:
        about = key.as_dict(private=False)
        if (
            key.key_type == kind
            and (key_id is None or about.get("kid") == key_id)
            and about.get("use", "sig") == "sig"
            and about.get("alg", algorithm) == algorithm
        ):
            return key
    raise _UnknownKeyError("none of the issuer's keys matches the token's header")


def _seconds(claims: Mapping[str, Any], name: str, *, required: bool) -> float:
    value = claims.get(name)
    if value is None and not required:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise TokenRefusedError(f"the claim {name} is missing or not a time")
    return float(value)


def _check_scope(name: str, claimed: Any) -> None:
    """It is a string, a list of strings, or absent."""
    listed = [claimed] if isinstance(claimed, str) else claimed
    if listed is None:
        return
    if not isinstance(listed, list) or not all(isinstance(one, str) and one.strip() for one in listed):
        raise TokenRefusedError(f"the claim {name} is malformed")

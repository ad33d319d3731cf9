"""Unsigned tokens, for development: a client is whoever its token claims.

Kafka's counterpart is org.apache.kafka.common.security.oauthbearer.internals.unsecured.
OAuthBearerUnsecuredValidatorCallbackHandler, with its options in the login configuration.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final

from ottla.security.oauth.oauthbearer import AccessToken, TokenRefusedError
from ottla.storage.clock import Clock

_PRINCIPAL: Final = "unsecuredValidatorPrincipalClaimName"
_SCOPE: Final = "unsecuredValidatorScopeClaimName"
_REQUIRED: Final = "unsecuredValidatorRequiredScope"
_SKEW: Final = "unsecuredValidatorAllowableClockSkewMs"


class UnsecuredValidator:
    """Believes every token whose claims make sense."""

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        """ValueError if an option makes no sense."""
        self.clock = clock
        self._name_claim = options.get(_PRINCIPAL) or "sub"
        self._scope_claim = options.get(_SCOPE) or "scope"
        self._required = options.get(_REQUIRED, "").split()
        self._skew_seconds = int(options.get(_SKEW) or 0) / 1000
        if self._skew_seconds < 0:
            raise ValueError(f"{_SKEW} is negative")

    async def validate(self, token: str) -> AccessToken:
        """See `TokenValidator`."""
        claims = _claims(token)
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenRefusedError(f"the claim {self._name_claim} holds no name")
        now = self.clock.time_ms() / 1000
        expires, issued, begins = (_number(claims, each) for each in ("exp", "iat", "nbf"))
        if expires is None or now - self._skew_seconds >= expires:
            raise TokenRefusedError("it has expired, or does not say when it does")
        for each in (issued, begins):
            if each is not None and (each > now + self._skew_seconds or each >= expires):
                raise TokenRefusedError("it is not valid yet, or ends before it begins")
        self._check_scope(claims.get(self._scope_claim))
        return AccessToken(name, int(expires * 1000))

    def _check_scope(self, claimed: Any) -> None:
        found = claimed.split() if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
        if not set(self._required) <= set(map(str, found)):
            scope = f"[{', '.join(self._required)}]"
            raise TokenRefusedError("a scope is missing", status="insufficient_scope", scope=scope)


def _claims(token: str) -> Mapping[str, Any]:
    header, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if not dot or signature or _json(header).get("alg") != "none":
        raise TokenRefusedError("it is signed, or not a token")
    return _json(payload)


def _json(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise TokenRefusedError("it is malformed") from None
    if not isinstance(found, dict):
        raise TokenRefusedError("it is malformed")
    return found


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TokenRefusedError(f"the claim {name} is not a number")
    return float(value)

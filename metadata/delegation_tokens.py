"""Delegation tokens as they are stored: whose they are, and until when they are valid (KIP-48).

A token's secret is not stored: it is computed from the token's id and `delegation.token.secret.key`.

Kafka's counterparts are org.apache.kafka.common.security.token.delegation.TokenInformation and
org.apache.kafka.controller.DelegationTokenControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from ottla.metadata.errors import (
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    InvalidPrincipalTypeError,
)
from ottla.metastore.errors import PolicyViolationError

#: Kafka has no bounds here. Every authenticated user may create tokens, and every broker keeps each in memory.
MAX_TOKENS: Final = 10_000
MAX_TOKENS_OF_REQUESTER: Final = 5_000
MAX_NAMES_LENGTH: Final = 4_096

_TOKENS_A_TRANSACTION: Final = 500
_USER: Final = "User"
_MAX_TIMESTAMP_MS: Final = (1 << 63) - 1


class TokenPrincipal(NamedTuple):
    """A principal by its two parts, either of which may contain a colon."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class DelegationToken(NamedTuple):
    """One token: valid until `expiry_timestamp_ms`, and if it is renewed until `max_timestamp_ms` at most."""

    token_id: str
    owner: TokenPrincipal
    requester: TokenPrincipal
    renewers: tuple[TokenPrincipal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    def is_good(self, now_ms: int) -> bool:
        return now_ms <= min(self.expiry_timestamp_ms, self.max_timestamp_ms)

    def may_renew(self, principal: TokenPrincipal) -> bool:
        """Whether somebody is its owner or one of its renewers."""
        return principal == self.owner or principal in self.renewers


TokenChanges = Mapping[str, DelegationToken | None]
"""The new states of tokens by their ids; None is removed."""


def new_token(
    token_id: str,
    owner: TokenPrincipal,
    requester: TokenPrincipal,
    renewers: Sequence[TokenPrincipal],
    now_ms: int,
    lifetime_ms: int,
    renew_period_ms: int,
) -> DelegationToken:
    """A token that is issued now. Raises InvalidPrincipalTypeError or PolicyViolationError."""
    if any(it.type != _USER for it in renewers):
        raise InvalidPrincipalTypeError(f"Only principals of the type {_USER} may renew a token.")
    if sum(len(it.type) + len(it.name) for it in (owner, requester, *renewers)) > MAX_NAMES_LENGTH:
        raise PolicyViolationError(f"The names of a token's principals have {MAX_NAMES_LENGTH} characters at most.")
    max_timestamp_ms = min(now_ms + lifetime_ms, _MAX_TIMESTAMP_MS)
    expiry_timestamp_ms = min(max_timestamp_ms, now_ms + renew_period_ms)
    return DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, expiry_timestamp_ms, max_timestamp_ms)


def added(token: DelegationToken, tokens: Mapping[str, DelegationToken]) -> TokenChanges:
    """The change that adds a token; raises PolicyViolationError if there are too many."""
    if len(tokens) >= MAX_TOKENS:
        raise PolicyViolationError(f"There are {MAX_TOKENS} delegation tokens already.")
    if len(tokens) >= MAX_TOKENS_OF_REQUESTER:
        of_requester = sum(1 for it in tokens.values() if it.requester == token.requester)
        if of_requester >= MAX_TOKENS_OF_REQUESTER:
            raise PolicyViolationError(f"{MAX_TOKENS_OF_REQUESTER} delegation tokens were made by this principal.")
    return {token.token_id: token}


def changeable(
    token_id: str | None, tokens: Mapping[str, DelegationToken], principal: TokenPrincipal, now_ms: int
) -> DelegationToken:
    """The token, if this principal may renew or expire it.

    Raises DelegationTokenNotFoundError, DelegationTokenExpiredError or DelegationTokenOwnerMismatchError, in the same
    order as Kafka.
    """
    token = None if token_id is None else tokens.get(token_id)
    if token is None:
        raise DelegationTokenNotFoundError("There is no such delegation token.")
    if not token.is_good(now_ms):
        raise DelegationTokenExpiredError("The delegation token has expired.")
    if not token.may_renew(principal):
        raise DelegationTokenOwnerMismatchError("The principal neither owns the delegation token nor may renew it.")
    return token


def expiring(token: DelegationToken, period_ms: int, now_ms: int) -> DelegationToken:
    """The token, valid for a period from now on, within its maximum."""
    return token._replace(expiry_timestamp_ms=min(token.max_timestamp_ms, now_ms + period_ms))


def expired(tokens: Mapping[str, DelegationToken], now_ms: int) -> TokenChanges:
    """The change that removes expired tokens, some hundreds at a time."""
    over = (token_id for token_id, token in tokens.items() if not token.is_good(now_ms))
    return dict.fromkeys(islice(over, _TOKENS_A_TRANSACTION))

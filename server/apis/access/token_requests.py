"""Common parts of the four APIs of delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metadata.delegation_tokens import TokenPrincipal
from ottla.metadata.errors import DelegationTokenRequestNotAllowedError, DelegationTokensDisabledError
from ottla.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from ottla.security.delegation_tokens import DelegationTokens
    from ottla.server.apis.context import RequestContext

NO_TIMESTAMP_MS: Final = -1


def requester_of(context: RequestContext) -> TokenPrincipal:
    kind, _, name = context.principal.partition(":")
    return TokenPrincipal(kind, name)


def check_connection(context: RequestContext) -> None:
    """Raises DelegationTokenRequestNotAllowedError if the connection has not authenticated, or by a token."""
    sasl = context.connection.sasl
    if context.principal == ANONYMOUS if sasl is None else sasl.is_token_authenticated:
        raise DelegationTokenRequestNotAllowedError(
            "Delegation tokens require authentication, and not by a delegation token."
        )


def tokens_of(context: RequestContext) -> DelegationTokens:
    """Raises DelegationTokensDisabledError if they are disabled."""
    tokens = context.broker.delegation_tokens
    if tokens is None:
        raise DelegationTokensDisabledError("delegation.token.secret.key is not set.")
    return tokens

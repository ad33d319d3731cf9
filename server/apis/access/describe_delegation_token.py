"""DescribeDelegationToken (41): tokens with their secrets, for their owners and renewers (KIP-48).

Other users see a token if they may DESCRIBE it, or DESCRIBE_TOKENS of its owner (KIP-373).
"""

from __future__ import annotations

from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.access.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.delegation_tokens import DelegationToken, TokenPrincipal
from ottla.metastore.errors import MetadataError
from ottla.security.access import Access
from ottla.server.apis.access.token_requests import check_connection, requester_of, tokens_of
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, BY_HANDLER)

_FIRST_VERSION_WITH_REQUESTER: Final = 3


async def handle(request: DescribeDelegationTokenRequest, context: RequestContext) -> DescribeDelegationTokenResponse:
    try:
        check_connection(context)
        tokens = tokens_of(context)
    except MetadataError as error:
        return DescribeDelegationTokenResponse(error_code=error_code(error))
    owners = None
    if request.owners is not None:
        asked = [TokenPrincipal(it.principal_type, it.principal_name) async for it in context.work.over(request.owners)]
        owners = frozenset(asked)
    requester = requester_of(context)
    found = []
    async for token in context.work.over(list(context.broker.metadata.delegation_tokens.values())):
        is_asked = owners is None or not owners.isdisjoint((token.owner, *token.renewers))
        if is_asked and _may_see(token, requester, context.access):
            found.append(_described(token, tokens.hmac(token.token_id), context.header.api_version))
    return DescribeDelegationTokenResponse(tokens=found)


def _may_see(token: DelegationToken, requester: TokenPrincipal, access: Access | None) -> bool:
    return (
        token.may_renew(requester)
        or access is None
        or access.allows(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.token_id, is_asked=False)
        or access.allows(AclOperation.DESCRIBE_TOKENS, AclResource.USER, str(token.owner), is_asked=False)
    )


def _described(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    described = DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=it.type, principal_name=it.name) for it in token.renewers
        ],
    )
    if version >= _FIRST_VERSION_WITH_REQUESTER:
        described.token_requester_principal_type, described.token_requester_principal_name = token.requester
    return described

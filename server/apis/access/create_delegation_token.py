"""CreateDelegationToken (38): a secret by which workers authenticate as its owner (KIP-48).

Authenticated users may create tokens for themselves, and with CREATE_TOKENS on a user, for that user (KIP-373).
"""

from __future__ import annotations

from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.access.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.delegation_tokens import TokenPrincipal
from ottla.metadata.errors import DelegationTokenAuthorizationError, InvalidPrincipalTypeError
from ottla.metastore.errors import MetadataError
from ottla.server.apis.access.token_requests import NO_TIMESTAMP_MS, check_connection, requester_of, tokens_of
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.CREATE_DELEGATION_TOKEN, BY_HANDLER, forwarded=True)

_FIRST_VERSION_WITH_REQUESTER: Final = 3


async def handle(request: CreateDelegationTokenRequest, context: RequestContext) -> CreateDelegationTokenResponse:
    requester = owner = requester_of(context)
    if request.owner_principal_name:
        owner = TokenPrincipal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name)
    if context.header.api_version >= _FIRST_VERSION_WITH_REQUESTER:
        response.token_requester_principal_type, response.token_requester_principal_name = requester
    try:
        check_connection(context)
        _check_owner(owner, requester, context)
        tokens = tokens_of(context)
        renewers = [
            TokenPrincipal(it.principal_type, it.principal_name) async for it in context.work.over(request.renewers)
        ]
        token = await tokens.create(requester, owner, renewers, request.max_lifetime_ms)
    except MetadataError as error:
        response.error_code = error_code(error)
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIMESTAMP_MS
        return response
    response.issue_timestamp_ms = token.issue_timestamp_ms
    response.expiry_timestamp_ms = token.expiry_timestamp_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    response.token_id = token.token_id
    response.hmac = tokens.hmac(token.token_id)
    return response


def _check_owner(owner: TokenPrincipal, requester: TokenPrincipal, context: RequestContext) -> None:
    if not owner.type:
        raise InvalidPrincipalTypeError("The owner has a name but no type.")
    if owner == requester or context.access is None:
        return
    if not context.access.allows(AclOperation.CREATE_TOKENS, AclResource.USER, str(owner)):
        raise DelegationTokenAuthorizationError("The principal may not create tokens for this owner.")

"""AlterUserScramCredentials (51): sets and removes SCRAM credentials of users (KIP-554).

Each user is answered once, and changes or not. What is stored is enough to check a password, but not to find it out.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.access.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.scram_changes import ScramDeletion, ScramUpsertion
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, on_cluster(AclOperation.ALTER), forwarded=True, changes_metadata=True)


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    deletions = [ScramDeletion(it.name, it.mechanism) async for it in context.work.over(request.deletions)]
    upsertions = [
        ScramUpsertion(it.name, it.mechanism, it.iterations, bytes(it.salt), bytes(it.salted_password))
        async for it in context.work.over(request.upsertions)
    ]
    errors: dict[str, MetadataError | None]
    try:
        errors = await context.broker.controller.alter_scram_credentials(deletions, upsertions)
    except MetadataError as error:
        errors = dict.fromkeys([it.name for it in request.deletions] + [it.name for it in request.upsertions], error)
    results = []
    async for user, refusal in context.work.over(errors.items()):
        code, message = outcome(refusal)
        results.append(AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message))
    return AlterUserScramCredentialsResponse(results=results)

"""DescribeUserScramCredentials (50): which SCRAM mechanisms users have, with how many iterations; never a secret.

No users, or null, is everybody who has a credential. `kafka-configs --entity-type users --describe` asks for it. Where
nothing is wrong the message is empty, and not null: as in Kafka since 4.4.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.access.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.errors import DuplicateResourceError, ResourceNotFoundError
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, on_cluster(AclOperation.DESCRIBE))


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    work = context.work
    credentials = context.broker.metadata.scram_credentials
    infos: dict[str, list[CredentialInfo]] = {}
    async for user, mechanism in work.over(await work.sorted(credentials), counts=False):
        iterations = credentials[user, mechanism].iterations
        infos.setdefault(user, []).append(CredentialInfo(mechanism=mechanism, iterations=iterations))
    #: Whether each of the names is there twice.
    asked: dict[str, bool] = {}
    async for each in work.over(request.users or (), counts=False):
        asked[each.name] = each.name in asked
    work.leave(asked, infos)
    results = []
    async for user in work.over(asked or infos):
        code, message = outcome(_refusal(user, infos, is_repeated=asked.get(user, False)))
        results.append(
            DescribeUserScramCredentialsResult(
                user=user, error_code=code, error_message=message or "", credential_infos=[] if code else infos[user]
            )
        )
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _refusal(user: str, infos: dict[str, list[CredentialInfo]], *, is_repeated: bool) -> MetadataError | None:
    if is_repeated:
        return DuplicateResourceError(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    if user not in infos:
        return ResourceNotFoundError(f"Attempt to describe a user credential that does not exist: {user}")
    return None

"""AlterClientQuotas (49): sets and removes quotas of users, client ids and addresses (KIP-546).

Each entity is answered separately, and changes entirely or not at all. A null name is the default of its type. Of an
entity that is named twice the first entry is carried out, and the answer is INVALID_REQUEST, as Kafka's
ClientQuotaControlManager has it.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.configs.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryDataResponse,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.errors import InvalidRequestError
from ottla.metadata.image import QuotaEntity
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.ALTER_CLIENT_QUOTAS, on_cluster(AclOperation.ALTER_CONFIGS), forwarded=True, changes_metadata=True)


async def handle(request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    named: dict[QuotaEntity, list[EntityData]] = {}
    asked: dict[QuotaEntity, dict[str, float | None]] = {}
    results: dict[QuotaEntity, MetadataError | None] = {}
    repeated: dict[QuotaEntity, MetadataError | None] = {}
    async for entry in context.work.over(request.entries):
        pairs = [(it.entity_type, it.entity_name) for it in entry.entity]
        entity = tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] is not None, pair[1] or "")))
        if entity in named:
            repeated[entity] = InvalidRequestError("An entity may be named only once: the first entry counts.")
        elif len({op.key for op in entry.ops}) != len(entry.ops):
            results[entity] = InvalidRequestError("A quota may be named only once.")
        else:
            asked[entity] = {op.key: None if op.remove else op.value for op in entry.ops}
        named[entity] = entry.entity
    try:
        done = await context.broker.controller.alter_client_quotas(asked, validate_only=request.validate_only)
        results.update(done)
    except MetadataError as error:
        results.update(dict.fromkeys(asked, error))
    results |= repeated
    answers = []
    async for entity, data in context.work.over(named.items()):
        code, message = outcome(results[entity])
        answers.append(EntryDataResponse(error_code=code, error_message=message, entity=data))
    return AlterClientQuotasResponse(entries=answers)

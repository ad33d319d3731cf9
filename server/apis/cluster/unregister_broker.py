"""UnregisterBroker (64): forgets a broker that will not come back. One that is running is INVALID_REQUEST."""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.metadata.acls import AclOperation
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.UNREGISTER_BROKER, on_cluster(AclOperation.ALTER), forwarded=True)


async def handle(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    failure: MetadataError | None = None
    try:
        await context.broker.controller.unregister_broker(request.broker_id)
    except MetadataError as error:
        failure = error
    code, message = outcome(failure)
    return UnregisterBrokerResponse(error_code=code, error_message=message)

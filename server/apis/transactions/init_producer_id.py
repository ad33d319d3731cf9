"""InitProducerId (22): a producer id and epoch, for an idempotent producer or for a transactional id.

- Without a transactional id a new producer id with epoch 0 is given every time, whatever id and epoch the producer
  names (Kafka's TransactionCoordinator.handleInitProducerId): each producer's state starts over.
- Ids come in blocks from the metadata store: none is ever given twice (KIP-730).
- Producer id and epoch of the request are both set or both absent, else INVALID_REQUEST (KIP-360).
- With a transactional id the transaction coordinator answers.
"""

from typing import Final

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transaction.state import ProducerIdAndEpoch
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.kproto.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metastore.errors import MetadataError
from ottla.security.access import Access
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import BY_HANDLER
from ottla.server.apis.transaction_errors import fenced_before

API = Api(ApiKey.INIT_PRODUCER_ID, BY_HANDLER)

_FIRST_FENCED: Final = 4


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if context.access is not None and (refusal := _refusal(request.transactional_id, context.access)):
        return _refused(refusal)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(request.transactional_id, request, context)
    try:
        producer_id = await context.broker.producer_ids.next()
    except MetadataError as error:
        return _refused(error_code(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _transactional(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        identity = await context.broker.transaction_coordinator.init_producer_id(
            transactional_id, request.transaction_timeout_ms, expected
        )
    except CoordinatorError as error:
        return _refused(fenced_before(error, context.header.api_version, _FIRST_FENCED))
    except MetadataError as error:
        return _refused(error_code(error))
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _refusal(transactional_id: str | None, access: Access) -> ErrorCode:
    """A transactional producer needs its id, any other the cluster or some topic that it may write to (KIP-679)."""
    if transactional_id is not None:
        may = access.allows(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        return ErrorCode.NONE if may else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if access.allows_any(AclOperation.WRITE, AclResource.TOPIC):
        return ErrorCode.NONE
    may = access.allows_on_cluster(AclOperation.IDEMPOTENT_WRITE)
    return ErrorCode.NONE if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)

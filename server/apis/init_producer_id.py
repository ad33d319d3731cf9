"""InitProducerId (22): a producer id and epoch, for an idempotent producer or for a transactional id.

- Without a transactional id a new producer id with epoch 0 is given every time, whatever id and epoch the producer
  names (Kafka's TransactionCoordinator.handleInitProducerId): each producer's state begins anew.
- Ids come in blocks from the metadata store, so that none is ever given twice (KIP-730).
- Producer id and epoch of the request are both set or both absent, else INVALID_REQUEST (KIP-360).
- With a transactional id the transaction coordinator answers.
"""

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.kproto.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.server.apis.errors import error_code
from ottla.server.context import RequestContext
from ottla.server.metadata.errors import MetadataError


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        producer_id = await context.broker.producer_ids.next()
    except MetadataError as error:
        return _refused(error_code(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)

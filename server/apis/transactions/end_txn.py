"""EndTxn (26): commit or abort a transaction.

- Answered when the outcome is decided; its markers are written after that.
- From version 5 every end raises the producer's epoch, and the answer says the identity to go on with (KIP-890). A
  retry is recognized by the epoch before.
"""

from typing import Final

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transaction.state import ProducerIdAndEpoch
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest, EndTxnResponse
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Named, Rule
from ottla.server.apis.transaction_errors import fenced_before

API = Api(ApiKey.END_TXN, Rule([Named(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id")]))

_FIRST_FENCED: Final = 2
_FIRST_OF_V2: Final = 5


async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    version = context.header.api_version
    try:
        identity = await context.broker.transaction_coordinator.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            client_version=2 if version >= _FIRST_OF_V2 else 0,
        )
    except CoordinatorError as error:
        return EndTxnResponse(error_code=fenced_before(error, version, _FIRST_FENCED))
    except MetadataError as error:
        # The producer has used up its epochs, and a new id cannot be had now.
        return EndTxnResponse(error_code=error_code(error))
    if version < _FIRST_OF_V2:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)

"""AddOffsetsToTxn (25): let a group's partition of `__consumer_offsets` take part in a transaction.

Under transactions v2 clients leave this out: TxnOffsetCommit does it for them.
"""

from typing import Final

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.config import OFFSETS_TOPIC
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Named, Rule
from ottla.server.apis.transaction_errors import fenced_before

API = Api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    Rule(
        [
            Named(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id"),
            Named(AclOperation.READ, AclResource.GROUP, "group_id"),
        ]
    ),
)

_FIRST_FENCED: Final = 2


async def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    broker = context.broker
    try:
        await broker.controller.ensure_topic(OFFSETS_TOPIC)
        await broker.transaction_coordinator.add_partitions(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [Partition(OFFSETS_TOPIC, broker.group_coordinator.partition_for(request.group_id))],
            0,
        )
    except CoordinatorError as error:
        return AddOffsetsToTxnResponse(error_code=fenced_before(error, context.header.api_version, _FIRST_FENCED))
    except MetadataError as error:
        return AddOffsetsToTxnResponse(error_code=error_code(error))
    return AddOffsetsToTxnResponse()

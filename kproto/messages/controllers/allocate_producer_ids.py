"""AllocateProducerIds (API key 67): a block of producer ids for one broker (KIP-730). From brokers to the
controller.

Promises: no id is ever handed out twice, even if parts of a block are lost.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, int64


class AllocateProducerIdsRequest(Request, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Response, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")

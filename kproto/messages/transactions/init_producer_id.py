"""InitProducerId (API key 22): a producer id and epoch, for idempotence or for a transactional id.

Promises: without a transactional id a new id, from any broker. With one, the coordinator fences older
producers of that id by a higher epoch, ends the transaction which they left open, and only then answers;
CONCURRENT_TRANSACTIONS meanwhile. A timeout above transaction.max.timeout.ms is
INVALID_TRANSACTION_TIMEOUT.

Versions: 2 is flexible; 3 states the producer's own id and epoch, so that it may continue after an error by
a bump of the epoch (KIP-360); 4 permits PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE (KIP-890). 6 serves
two-phase commit (KIP-939) and is not released: declared, never advertised.

What brokers get wrong: kafka-python and Java 3 and later send it with every producer, since idempotence is
their default. The epoch runs out at 32767, and the producer then gets a new id.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, boolean, int16, int32, int64, string


class InitProducerIdRequest(Request, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+", unstable="6"):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Response, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+", unstable="6"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)

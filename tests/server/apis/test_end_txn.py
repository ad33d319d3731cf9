"""EndTxn where the transaction coordinator cannot go on now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.metastore.errors import StoreUnavailableError
from ottla.server.apis.transactions import end_txn


async def test_without_the_metadata_store_a_producer_whose_epochs_are_used_up_asks_again() -> None:
    """Its next id comes from there. Clients give up at UNKNOWN_SERVER_ERROR."""

    async def end(*arguments: Any, **named: Any) -> Any:
        raise StoreUnavailableError("The metadata store cannot be reached.")

    broker = SimpleNamespace(transaction_coordinator=SimpleNamespace(end=end))
    context: Any = SimpleNamespace(header=SimpleNamespace(api_version=5), broker=broker)
    answer = await end_txn.handle(EndTxnRequest(transactional_id="x", producer_id=1, committed=True), context)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

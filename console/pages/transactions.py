"""Transactions: what every transactional id is at, and the producers that keep a partition's readers waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.parameters import text
from ottla.console.rendering import Slices
from ottla.console.selection import select
from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.coordinator.transaction.state import TransactionStatus
from ottla.server.metadata.acls import AclOperation, AclResource

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.visitors import Visitor
    from ottla.server.broker import Broker
    from ottla.server.coordinator.transaction.state import Transaction

MAX_TRANSACTIONS: Final = 200
MAX_OPEN: Final = 200

_UNDER_WAY: Final = (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


class OpenInLog(NamedTuple):
    """A transaction that is open in a partition: from `first_offset` on, read_committed readers see nothing."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


async def show_all(console: Console, request: Request) -> Response:
    broker = console.broker
    query = text(request, "q")
    problem = ""
    transactions: list[Transaction] = []
    try:
        transactions = await _seen(console.visitor(request), broker.transaction_coordinator.list_transactions())
    except CoordinatorError as error:
        problem = str(error)
    under_way, others = await _sort_out(transactions, query.lower())
    page = await select(others, matches=lambda _: True, after=None, limit=MAX_TRANSACTIONS)
    shown = [*under_way, *(others[name] for name in page.names)][:MAX_TRANSACTIONS]
    return await console.page(
        request,
        "transactions.html",
        section="transactions",
        query=query,
        problem=problem,
        transactions=shown,
        total=len(under_way) + len(others),
        under_way=_UNDER_WAY,
        opened=await _open_in_logs(broker, console.visitor(request)),
        now_ms=broker.clock.time_ms(),
    )


async def _sort_out(transactions: list[Transaction], wanted: str) -> tuple[list[Transaction], dict[str, Transaction]]:
    """Those under way, and the others by their ids, of those whose id has `wanted` in it."""
    under_way: list[Transaction] = []
    others: dict[str, Transaction] = {}
    slices = Slices()
    for each in transactions:
        if slices.over:
            await slices.rest()
        if wanted not in each.transactional_id.lower():
            continue
        if each.status in _UNDER_WAY:
            under_way.append(each)
        else:
            others[each.transactional_id] = each
    return under_way, others


async def _seen(visitor: Visitor, transactions: list[Transaction]) -> list[Transaction]:
    """Those that the visitor may know of."""
    found = []
    slices = Slices()
    for each in transactions:
        if visitor.may(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, each.transactional_id):
            found.append(each)
        if slices.over:
            await slices.rest()
    return found


async def _open_in_logs(broker: Broker, visitor: Visitor) -> list[OpenInLog]:
    found: list[OpenInLog] = []
    slices = Slices()
    for partition in list(broker.replica_manager.partitions()):
        if slices.over:
            await slices.rest()
        if not visitor.may_on_topic("READ", partition.topic):
            continue
        for entry in partition.log.active_producers() if partition.log.producers is not None else ():
            if entry.transaction_first_offset < 0:
                continue
            found.append(
                OpenInLog(
                    partition.topic,
                    partition.index,
                    entry.producer_id,
                    entry.producer_epoch,
                    entry.transaction_first_offset,
                    entry.last_timestamp_ms,
                )
            )
            if len(found) >= MAX_OPEN:
                return found
    return found

"""Transactions: the state of every transactional id, and the producers that keep a partition's readers waiting."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.console.nodes import ask_each, other_nodes
from ottla.console.parameters import text
from ottla.console.selection import select
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transaction.state import Partition, TransactionStatus
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.messages.transactions.list_transactions import ListTransactionsRequest
from ottla.metadata.acls import AclOperation, AclResource
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.visitors import Visitor
    from ottla.coordinator.transaction.state import Transaction
    from ottla.server.broker import Broker

MAX_TRANSACTIONS: Final = 200
MAX_OPEN: Final = 200

_UNDER_WAY: Final = (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


class TransactionView(NamedTuple):
    """The state of a transactional id on another node, with the names of `Transaction`."""

    transactional_id: str
    status: TransactionStatus
    producer_id: int
    producer_epoch: int
    start_ms: int
    timeout_ms: int
    partitions: Collection[Partition]


Shown: TypeAlias = "Transaction | TransactionView"


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
    problems: list[str] = []
    transactions: list[Shown] = []
    try:
        transactions += broker.transaction_coordinator.list_transactions()
    except CoordinatorError as error:
        problems.append(str(error))
    transactions += await _elsewhere(broker, query.lower(), problems)
    under_way, others = await _sort_out(await _seen(console.visitor(request), transactions), query.lower())
    page = await select(others, matches=lambda _: True, after=None, limit=MAX_TRANSACTIONS)
    shown = [*under_way, *(others[name] for name in page.names)][:MAX_TRANSACTIONS]
    return await console.page(
        request,
        "transactions.html",
        section="transactions",
        query=query,
        problems=problems,
        transactions=shown,
        partitions=_partitions(console.visitor(request), shown),
        total=len(under_way) + len(others),
        under_way=_UNDER_WAY,
        opened=await _open_in_logs(broker, console.visitor(request)),
        has_others=bool(other_nodes(broker)),
        now_ms=broker.clock.time_ms(),
    )


def _partitions(visitor: Visitor, transactions: Sequence[Shown]) -> dict[str, list[Partition]]:
    """The partitions in each transaction, of topics that the visitor may describe."""
    may_describe = cache(lambda topic: visitor.may_on_topic("DESCRIBE", topic))
    return {
        each.transactional_id: [where for where in each.partitions if may_describe(where.topic)]
        for each in transactions
    }


async def _elsewhere(broker: Broker, wanted: str, problems: list[str]) -> list[TransactionView]:
    """Transactions that other nodes coordinate, as many as a page has room for."""
    listed = await ask_each(broker, {node_id: ListTransactionsRequest() for node_id in other_nodes(broker)})
    requests: dict[int, DescribeTransactionsRequest] = {}
    slices = TimeSlice()
    for node_id, answer in listed.by_node.items():
        states: dict[str, bool] = {}
        for each in answer.transaction_states:
            if wanted in each.transactional_id.lower():
                states[each.transactional_id] = _status(each.transaction_state) in _UNDER_WAY
            if slices.is_over:
                await slices.maybe_yield()
        chosen = sorted(states, key=lambda name: (not states[name], name))[:MAX_TRANSACTIONS]
        if chosen:
            requests[node_id] = DescribeTransactionsRequest(transactional_ids=chosen)
    described = await ask_each(broker, requests)
    problems += listed.problems + described.problems
    return [
        TransactionView(
            each.transactional_id,
            _status(each.transaction_state),
            each.producer_id,
            each.producer_epoch,
            each.transaction_start_time_ms,
            each.transaction_timeout_ms,
            [Partition(topic.topic, index) for topic in each.topics for index in topic.partitions],
        )
        for answer in described.by_node.values()
        for each in answer.transaction_states
        if not each.error_code
    ]


def _status(title: str) -> TransactionStatus:
    return next((each for each in TransactionStatus if each.title == title), TransactionStatus.DEAD)


async def _sort_out(transactions: list[Shown], wanted: str) -> tuple[list[Shown], dict[str, Shown]]:
    """The transactions whose id contains `wanted`: first the ongoing ones, then the others, by id."""
    under_way: list[Shown] = []
    others: dict[str, Shown] = {}
    slices = TimeSlice()
    for each in transactions:
        if slices.is_over:
            await slices.maybe_yield()
        if wanted not in each.transactional_id.lower():
            continue
        if each.status in _UNDER_WAY:
            under_way.append(each)
        else:
            others[each.transactional_id] = each
    return under_way, others


async def _seen(visitor: Visitor, transactions: list[Shown]) -> list[Shown]:
    """The transactions that the visitor may see."""
    found = []
    slices = TimeSlice()
    for each in transactions:
        if visitor.may(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, each.transactional_id):
            found.append(each)
        if slices.is_over:
            await slices.maybe_yield()
    return found


async def _open_in_logs(broker: Broker, visitor: Visitor) -> list[OpenInLog]:
    found: list[OpenInLog] = []
    slices = TimeSlice()
    for partition in broker.replica_manager.partitions():
        if slices.is_over:
            await slices.maybe_yield()
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

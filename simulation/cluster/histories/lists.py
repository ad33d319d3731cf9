"""Partitions as lists that transactions append to, as Elle looks at them: which transaction comes after which.

Transactions of one writer come one after the other, so all lists have them in one order (or one is dirty: somebody
who was fenced has written). A transaction that reads what another one has appended comes after it. A circle of these
contradicts every order in which they can have been carried out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.simulation.cluster.histories.attempts import Attempt, Partition, Transaction

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Move

__all__ = ["Order", "order_of_appends", "order_of_reads"]

Order = defaultdict[Transaction, set[Transaction]]
"""For each transaction those that come before it."""


def order_of_appends(attempts: Mapping[bytes, Attempt], committed: Mapping[Partition, Mapping[int, bytes]]) -> Order:
    """The order that the lists have each writer's transactions in; readers of committed records see `committed`."""
    before: Order = defaultdict(set)
    for records in committed.values():
        last: dict[str, Transaction] = {}
        for _, value in sorted(records.items()):
            attempt = attempts.get(value)
            transaction = None if attempt is None else attempt.transaction
            if transaction is None:
                continue
            former = last.get(transaction.writer)
            if former is not None and former is not transaction:
                before[transaction].add(former)
            last[transaction.writer] = transaction
    return before


def order_of_reads(attempts: Mapping[bytes, Attempt], moves: Sequence[Move]) -> Order:
    """The order that follows from reads: a transaction comes after those whose records it has read."""
    before: Order = defaultdict(set)
    for move in moves:
        for records in move.inputs.values():
            for value in records.values():
                attempt = attempts.get(value)
                if attempt is not None and attempt.transaction is not None:
                    before[move].add(attempt.transaction)
    return before

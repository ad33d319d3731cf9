"""What clients try to write: records, and transactions of them."""

from __future__ import annotations

__all__ = ["Attempt", "Partition", "Transaction"]

Partition = tuple[str, int]


class Attempt:
    """A record that a producer sends, perhaps several times. No two have the same value."""

    __slots__ = ("number", "offset", "partition", "producer", "transaction", "value")

    def __init__(self, producer: str, partition: Partition, number: int, transaction: Transaction | None) -> None:
        self.producer = producer
        self.partition = partition
        #: Of the producer's records for this partition, in the order in which it sends them.
        self.number = number
        self.transaction = transaction
        self.value = f"{producer}/{partition[1]}/{number}".encode()
        #: Where it was acknowledged, -1 if it was without an offset; None if it was not.
        self.offset: int | None = None


class Transaction:
    """What is to be seen of it together, or not at all. `outcome` is None while nobody knows."""

    __slots__ = ("name", "outcome")

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome: bool | None = None

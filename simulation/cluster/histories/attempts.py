"""What clients try to write: records, and transactions of them."""

from __future__ import annotations

__all__ = ["Attempt", "Partition", "Transaction"]

Partition = tuple[str, int]


class Attempt:
    """A record that a producer sends, perhaps several times. No two have the same value."""

    __slots__ = ("acknowledged_at_s", "number", "offset", "partition", "producer", "transaction", "value")

    def __init__(
        self,
        producer: str,
        partition: Partition,
        number: int,
        transaction: Transaction | None,
        value: bytes | None = None,
    ) -> None:
        self.producer = producer
        self.partition = partition
        #: Of the producer's records for this partition, in the order in which it sends them.
        self.number = number
        self.transaction = transaction
        self.value = value or f"{producer}/{partition[1]}/{number}".encode()
        #: Where it was acknowledged, -1 if it was without an offset; None if it was not.
        self.offset: int | None = None
        #: The simulation's time at which it was.
        self.acknowledged_at_s: float | None = None


class Transaction:
    """Records that are to be seen together, or not at all. `outcome` is None while nobody knows.

    All transactions of one `writer`, which is a transactional id, are carried out one after the other.
    """

    __slots__ = ("name", "outcome", "writer")

    def __init__(self, name: str, writer: str = "") -> None:
        self.name = name
        self.writer = writer or name
        self.outcome: bool | None = None


class Move(Transaction):
    """A transaction that moves: for each partition where it began, and the offset before which it has moved all."""

    __slots__ = ("inputs", "outputs", "read", "written")

    def __init__(self, name: str, writer: str = "") -> None:
        super().__init__(name, writer)
        self.read: dict[Partition, int] = {}
        self.written: dict[Partition, int] = {}
        self.inputs: dict[Partition, dict[int, bytes]] = {}
        self.outputs: list[Attempt] = []

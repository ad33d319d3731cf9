"""Which transactional writes the transaction coordinator is being asked about, in one partition (KIP-890).

A token is asked for before the coordinator is, and given back with the batch. It dies with the first transactional
batch or marker of its producer, so that an answer that comes late opens nothing.
"""

from __future__ import annotations

__all__ = ["VerificationGuard", "Verifications"]


class VerificationGuard:
    """A token of one verification with the transaction coordinator (KIP-890), Kafka's `VerificationStateEntry`.

    It is compared by identity.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "supports_epoch_bump", "timestamp_ms")

    def __init__(
        self, producer_epoch: int, lowest_sequence: int, *, supports_epoch_bump: bool, timestamp_ms: int
    ) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.timestamp_ms = timestamp_ms

    def note(self, producer_epoch: int, base_sequence: int) -> None:
        """A batch was sent with these."""
        if producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)
        elif producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, base_sequence


class Verifications:
    """The tokens that are out, one a producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def begin(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The token for a batch: the one that is out, or a new one.

        It knows the lowest sequence of the latest epoch, and whether the first batch was one of transactions v2.
        """
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard(
                producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump, timestamp_ms=now_ms
            )
        guard.note(producer_epoch, base_sequence)
        return guard

    def get(self, producer_id: int) -> VerificationGuard | None:
        """The token that is out."""
        return self._guards.get(producer_id)

    def end(self, producer_id: int) -> None:
        """A batch or marker of the producer's transaction was written."""
        self._guards.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget what nobody came back with."""
        stale = [pid for pid, guard in self._guards.items() if now_ms - guard.timestamp_ms >= expiration_ms]
        for producer_id in stale:
            del self._guards[producer_id]

    def clear(self) -> None:
        """Forget all."""
        self._guards.clear()

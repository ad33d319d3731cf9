"""How long an answer of upstream is valid.

Nothing is served unless upstream has confirmed within the last half second that this reader may read the topic, that
the broker leads the partition in the same leader epoch, and where its log begins and ends. Each answer to a Fetch
confirms all of that at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

if TYPE_CHECKING:
    from uuid import UUID

COUNTS_SECONDS: Final = 0.5
"""How long an answer of upstream is valid. Kafka's brokers learn of changed rights or leaders about as quickly."""

_MAX_READERS: Final = 20_000

READ_COMMITTED: Final = 1


class Reader(NamedTuple):
    """A reader as far as upstream can tell readers apart, the port on which it comes in, and its isolation level."""

    identity: object
    listener: str
    level: int


class Seen(NamedTuple):
    """Upstream's last answer about a partition to readers of one isolation level, at time `at`."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    at: float

    def is_fresh(self) -> bool:
        return trio.current_time() - self.at < COUNTS_SECONDS

    def visible_end(self, isolation_level: int) -> int:
        """The offset after the last record that such a reader may see."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark


class Readers:
    """The readers that were allowed to read each topic, and when."""

    def __init__(self) -> None:
        self._let: OrderedDict[tuple[object, UUID], float] = OrderedDict()

    def let(self, identity: object, topic_id: UUID, asked_at: float) -> None:
        """Upstream has allowed this reader to read. It checks rights when it is asked, and may answer much later."""
        self._let[identity, topic_id] = max(asked_at, self._let.get((identity, topic_id), asked_at))
        self._let.move_to_end((identity, topic_id))
        while len(self._let) > _MAX_READERS:
            self._let.popitem(last=False)

    def forbid(self, identity: object, topic_id: UUID) -> None:
        """Upstream has refused."""
        self._let.pop((identity, topic_id), None)

    def may(self, identity: object, topic_id: UUID) -> bool:
        """Whether upstream has allowed this reader to read just now."""
        at = self._let.get((identity, topic_id))
        return at is not None and trio.current_time() - at < COUNTS_SECONDS

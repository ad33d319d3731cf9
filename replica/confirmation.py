"""Whether partitions are led from here still, where this node may have been replaced without having heard of it.

What is read needs no agreement of other replicas, so a leader that is cut off from the metadata could go on showing
what is long out of date. Consumers of records may see that in Kafka, too. But where a committed offset goes back, a
transaction is repeated, and where the last transaction is taken for the present one, that is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.replica.errors import NotLeaderError

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

#: Followers that have nothing to fetch ask again after `replica.fetch.wait.max.ms`.
_LOOK_AGAIN_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 3.0


class BrokerSession(Protocol):
    """This node's session with the cluster."""

    @property
    def may_have_ended(self) -> bool:
        """Whether it may be over by now, so that others lead in this node's place."""


async def confirm_leadership(partitions: Iterable[Partition]) -> None:
    """Return when nobody else had led any of these when this was called; raises NotLeaderError if that is not known
    soon.

    Another leader was elected from the eligible replicas, and learned of it before it committed anything. A replica
    that fetches here twice from now on had not when this was called: it has since had the answer to the first fetch.
    """
    waiting = {partition: partition.fetches() for partition in partitions}
    deadline = trio.current_time() + _PATIENCE_SECONDS
    while waiting := {each: before for each, before in waiting.items() if not _is_confirmed(each, before)}:
        if trio.current_time() > deadline:
            raise NotLeaderError(f"{next(iter(waiting))!r} is not followed from here: another node may lead it")
        await trio.sleep(_LOOK_AGAIN_SECONDS)


def _is_confirmed(partition: Partition, before: dict[int, int]) -> bool:
    if not partition.is_leader:
        raise NotLeaderError(f"{partition!r} is not led from here any more")
    return all(count >= before.get(replica, 0) + 2 for replica, count in partition.fetches().items())

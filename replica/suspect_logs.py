"""Looks through the logs of replicas that may lack records, before they are filled from their leaders."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.replica.follower import UNKNOWN_OFFSET
from ottla.replica.partition import Role
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 30


class SuspectLogsListener(Protocol):
    """Goes on with what has been looked through."""

    async def looked_through(self, partition: Partition) -> None:
        """It is known up to where a partition's log is sound."""


class SuspectLogs:
    """Reads one log after the other, as a consumer would, up to the first offset that cannot be read."""

    def __init__(self, listener: SuspectLogsListener) -> None:
        self._listener = listener
        self._waiting: dict[Partition, None] = {}
        self._news = trio.Event()

    def look_through(self, partition: Partition) -> None:
        """Do so soon, if it is a follower still when its turn comes."""
        self._waiting[partition] = None
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._waiting:
                partition = next(iter(self._waiting))
                del self._waiting[partition]
                if partition.role is Role.FOLLOWER and partition.first_bad_offset == UNKNOWN_OFFSET:
                    await self._look_through(partition)

    async def _look_through(self, partition: Partition) -> None:
        log = partition.log
        try:
            first_bad_offset = await log.find_unreadable()
        except (StorageError, OSError) as error:
            if partition.role is Role.FOLLOWER:
                name = f"{partition.topic}-{partition.index}"
                logger.warning("%s cannot be looked through now: %s", name, error, extra={"error": str(error)})
                await trio.sleep(_RETRY_SECONDS)
                self.look_through(partition)
            return
        partition.found_sound(first_bad_offset)
        await self._listener.looked_through(partition)

"""The logs of this node that are kept although the cluster does not count on them (`ottla.storage.kept_logs`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.storage.errors import CorruptLogError
from ottla.storage.kept_logs import KEPT_FILE, KeptLog, read_kept_logs, write_kept_logs
from ottla.storage.log_tail import set_tail_aside

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.storage.disk import Disk
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.worker_threads import WorkerThreads

logger = logging.getLogger(__name__)


class KeptLogs:
    """The list in the node's folder. `load` comes first; the task that applies metadata changes it.

    If the list cannot be written, the list in memory still counts, and the next change writes it again.
    """

    def __init__(self, disk: Disk, folder: str, threads: WorkerThreads) -> None:
        self._disk = disk
        self._folder = folder
        self._threads = threads
        self._logs: dict[tuple[UUID, int], KeptLog] = {}

    def get(self, topic_id: UUID, partition: int) -> KeptLog | None:
        """What is noted of a partition's log; None if it is not kept."""
        return self._logs.get((topic_id, partition))

    def of_topic(self, topic_id: UUID) -> list[KeptLog]:
        """The kept logs of a topic."""
        return [log for log in self._logs.values() if log.topic_id == topic_id]

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[KeptLog]:
        return iter(list(self._logs.values()))

    async def load(self) -> None:
        """Read the list. If it cannot be read, stray logs are found again; the others count as any follower's."""
        if not self._disk.exists(os.path.join(self._folder, KEPT_FILE)):
            return
        try:
            found = await self._threads.offload(read_kept_logs, self._disk, self._folder)
        except (OSError, CorruptLogError) as error:
            keys = {"path": self._folder, "error": str(error)}
            logger.error("%s in %s cannot be read: %s", KEPT_FILE, self._folder, error, extra=keys)  # noqa: TRY400
            return
        self._logs = {(log.topic_id, log.partition): log for log in found}

    async def change(self, kept: Iterable[KeptLog] = (), released: Iterable[KeptLog] = ()) -> None:
        """Keep logs, or note something else of those that are kept; and keep others no longer."""
        before = dict(self._logs)
        for log in released:
            self._logs.pop((log.topic_id, log.partition), None)
        self._logs.update(((log.topic_id, log.partition), log) for log in kept)
        if self._logs == before:
            return
        kept_now = list(self._logs.values())
        try:
            await self._threads.offload(write_kept_logs, self._disk, self._folder, kept_now)
        except OSError as error:
            keys = {"path": self._folder, "error": str(error)}
            logger.warning("%s in %s cannot be written: %s", KEPT_FILE, self._folder, error, extra=keys)

    async def set_aside(self, log: PartitionLog, offset: int) -> None:
        """Copy what a log has at and after an offset into a file, before it is cut there. Raises StorageError.

        Damage in the log is no reason to keep all of it for ever: what cannot be read is in a copy of the data file.
        """
        end_offset = log.log_end_offset
        aside = await set_tail_aside(log, offset, self._folder)
        keys = {"topic": log.topic, "partition": log.partition}
        if aside.unreadable:
            text = "%s of %s-%d cannot be read, as the data file is damaged, and its leader does not have %s; see %s"
            several = len(aside.unreadable) > 1 or aside.unreadable[0][0] < aside.unreadable[0][1]
            which = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in aside.unreadable)
            copies = ", ".join(f"`ottla salvage {path}`" for path in aside.damaged) or "a backup: the file is gone"
            offsets = f"offset{'s' if several else ''} {which}"
            logger.error(text, offsets, log.topic, log.partition, "them" if several else "it", copies, extra=keys)
        if aside.path is not None:
            text = "%s-%d: offsets %d to %d, which its leader does not have, are set aside in %s: see `ottla salvage`"
            keys |= {"path": aside.path}
            logger.error(text, log.topic, log.partition, offset, end_offset - 1, aside.path, extra=keys)

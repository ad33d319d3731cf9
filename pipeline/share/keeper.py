"""What keeps a member in its group, and its records locked, while Spark works on a batch."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Final

from ottla.client.errors import ClientError
from ottla.pipeline.client.answers import RetriableError
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.share.member import ShareMember

__all__ = ["Keeper"]

_log = logging.getLogger(__name__)

# A lock is renewed so often in its time that one failure does not end it.
_RENEWALS_A_LOCK: Final = 3
_END_TIMEOUT_S: Final = 5.0


class Keeper:
    """A thread that sends heartbeats and renews locks, and the lock by which it and the query take turns.

    Used as a context it lends the member to the caller; the thread waits meanwhile. `stop` ends the thread.
    """

    def __init__(self, member: ShareMember) -> None:
        self._member = member
        self._turn = threading.RLock()
        self._stopped = threading.Event()
        self._tended_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="ottla-share-keeper", daemon=True)

    def start(self) -> None:
        """Begin; the member has joined its group."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. It may be in the middle of a request, whose end is waited for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_END_TIMEOUT_S)

    def __enter__(self) -> ShareMember:
        self._turn.acquire()
        return self._member

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turn.release()

    def tend(self) -> None:
        """Send a heartbeat and renew locks if it is time; called while the member is borrowed for long."""
        if time.monotonic() - self._tended_s >= self._pause_s():
            self._tended_s = time.monotonic()
            self._member.renew()
            self._member.heartbeat()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s() / 2):
            with self._turn:
                if self._stopped.is_set():
                    return
                try:
                    self.tend()
                except (ClientError, PipelineError, RetriableError) as error:
                    # The query meets the same error when it asks for the next batch, if it lasts.
                    _log.warning("The share group's coordinator or a leader cannot be reached: %s", error)

    def _pause_s(self) -> float:
        member = self._member
        return min(member.heartbeat_interval_ms, member.lock_timeout_ms / _RENEWALS_A_LOCK) / 1000

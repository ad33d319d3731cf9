"""The faults of a broker under test, as its test uses them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.kproto.errors import ErrorCode
from ottla.settings.sources import did_you_mean
from ottla.storage.disk import faults as disk_faults
from ottla.testing.apis import api_key
from ottla.testing.faults.plan import Answer, Fault, FaultKind, FaultPlan

if TYPE_CHECKING:
    from ottla.kproto.schema import Response
    from ottla.storage.disk.faults import FaultInjector

Call = Callable[..., Any]
"""Runs a function on the broker's loop and returns its result."""


class Faults:
    """What happens to requests from now on, until `clear` or the broker's `reset`.

    APIs have Kafka's names, such as "Produce" or "OffsetCommit"; None means every API. `times` is how many requests a
    fault strikes; None means all from now on. Every method returns the rule, whose `struck` counts the requests it has
    struck.
    """

    def __init__(self, plan: FaultPlan, call: Call, disk_faults: FaultInjector | None) -> None:
        self._plan = plan
        self._call = call
        self._disk_faults = disk_faults

    def delay(
        self,
        api: str | None = None,
        *,
        ms: float,
        jitter_ms: float = 0,
        times: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Fault:
        """Serve requests later, by `ms` and a random part of `jitter_ms` (which depends on the broker's `seed`)."""
        return self._add(api, FaultKind.DELAY, times, topic, partition, delay_ms=ms, jitter_ms=jitter_ms)

    def fail(
        self,
        api: str,
        error: str | int,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Fault:
        """Answer with an error code ("NOT_LEADER_OR_FOLLOWER") instead of carrying out the request.

        With `topic` (and `partition`), only that part of a request fails.
        """
        return self._add(api, FaultKind.ERROR, times, topic, partition, error_code=_error_code(error))

    def drop_connections(
        self,
        api: str | None = None,
        *,
        times: int | None = 1,
        after_handling: bool = False,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Fault:
        """Close the connections of requests instead of answering them.

        With `after_handling` they are served first: the records of a Produce are written, and its acknowledgement is
        lost.
        """
        kind = FaultKind.LOSE_ANSWER if after_handling else FaultKind.DROP
        return self._add(api, kind, times, topic, partition)

    def throttle(self, api: str | None = None, *, ms: float, times: int | None = None) -> Fault:
        """Tell clients to wait this long, as if they had exceeded their quota, and read nothing from them meanwhile."""
        return self._add(api, FaultKind.THROTTLE, times, None, None, delay_ms=ms)

    def answer(self, api: str, answer: Response | Answer, *, times: int | None = 1) -> Fault:
        """Answer requests with what the test has written, instead of carrying them out.

        `answer` is a response of `ottla.kproto.messages`, or a function from the request to one; if that returns None
        the request is served as usual.
        """
        function = answer if callable(answer) else lambda _request: answer
        return self._add(api, FaultKind.ANSWER, times, None, None, answer=function)

    def fail_disk(
        self, error: str = "EIO", *, operation: str = "pwritev", times: int | None = None
    ) -> disk_faults.Fault:
        """Make writes (`pwritev`), reads (`preadv`) or syncs (`fdatasync`) of the disk fail with "EIO", "ENOSPC", …

        A store whose write has failed stops for good, as it must; `broker.restart()` opens it again. Only for data in
        memory.
        """
        if self._disk_faults is None:
            raise ValueError("disk faults need a broker that keeps its data in memory")
        fault = disk_faults.Fault(
            disk_faults.FaultKind.ERROR, frozenset({operation}), errno=getattr(errno, error), count=times
        )
        return self._disk_faults.add(fault)

    def stall(self) -> None:
        """Answer nothing from now on: requests are accepted, and wait."""
        self._call(self._plan.stall)

    def resume(self) -> None:
        """End a stall: waiting requests are served."""
        self._call(self._plan.resume)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Stall during a `with` block."""
        self.stall()
        try:
            yield
        finally:
            self.resume()

    def remove(self, fault: Fault) -> None:
        """Lift one rule."""
        self._call(self._plan.remove, fault)

    @property
    def unstruck(self) -> list[Fault]:
        """The rules in force that have struck no request yet."""
        return list(self._call(lambda: self._plan.unstruck))

    def clear(self) -> None:
        """Lift every rule, including the disk's, and end a stall."""
        self._call(self._plan.clear)
        if self._disk_faults is not None:
            self._disk_faults.clear()

    def _add(
        self,
        api: str | None,
        kind: FaultKind,
        times: int | None,
        topic: str | None,
        partition: int | None,
        **details: Any,
    ) -> Fault:
        if partition is not None and topic is None:
            raise ValueError("a partition needs its topic")
        key = None if api is None else api_key(api)
        fault: Fault = self._call(
            self._plan.add, Fault(kind, key, times=times, topic=topic, partition=partition, **details)
        )
        return fault


def _error_code(error: str | int) -> ErrorCode:
    try:
        return ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        hint = did_you_mean(str(error).upper(), (code.name for code in ErrorCode))
        hint = hint or " Its names are Kafka's, such as 'REQUEST_TIMED_OUT'."
        raise ValueError(f"there is no error {error!r}.{hint}") from None

"""Counters of each API's requests: their number, sizes and errors, and the parts of their time.

The parts of a request's time are Kafka's (`kafka.network:type=RequestMetrics`):

- queue: from its last byte to the moment when work on it begins
- local: the work itself, with reading and writing files
- remote: waiting for others, in a purgatory or for a coordinator's log
- send: from the response to its last byte in the socket

Plain numbers that one task writes at a time; `/metrics` reads them when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.codec import Steps
from ottla.kproto.messages import response_class
from ottla.kproto.schema import StructType
from ottla.storage.histogram import Histogram

_MAX_UNCOUNTED: Final = 64

PHASES = ("queue", "local", "remote", "send", "total")


class RequestMetrics:
    """The counters of one API; made when the API is first called.

    What is recorded of a request is kept as it is, and counted for many requests together: that is nearly free.
    """

    __slots__ = (
        "_local",
        "_queue",
        "_recorded",
        "_remote",
        "_request_bytes",
        "_response_bytes",
        "_send",
        "_total",
        "count_errors",
        "errors",
    )

    def __init__(self, counter: ErrorCounter) -> None:
        #: Error responses by code. One request may have several.
        self.errors: dict[int, int] = {}
        #: Counts the errors that a response tells.
        self.count_errors: Callable[[Any], None] = partial(counter, self.errors)
        self._recorded: list[tuple[int, int, float, float, float, float]] = []
        self._request_bytes = self._response_bytes = 0
        self._queue = Histogram()
        self._local = Histogram()
        self._remote = Histogram()
        self._send = Histogram()
        self._total = Histogram()

    @property
    def request_bytes(self) -> int:
        """How large the requests were, together."""
        self._count()
        return self._request_bytes

    @property
    def response_bytes(self) -> int:
        """How large the answers were, together."""
        self._count()
        return self._response_bytes

    @property
    def queue(self) -> Histogram:
        """For how long requests waited until work on them began."""
        self._count()
        return self._queue

    @property
    def local(self) -> Histogram:
        """How long the work took."""
        self._count()
        return self._local

    @property
    def remote(self) -> Histogram:
        """For how long others were waited for."""
        self._count()
        return self._remote

    @property
    def send(self) -> Histogram:
        """How long it took to send the answers."""
        self._count()
        return self._send

    @property
    def total(self) -> Histogram:
        """How long requests took, from the first part to the last."""
        self._count()
        return self._total

    @property
    def requests(self) -> int:
        """How many requests were answered, or needed no answer."""
        return self.total.count

    def record(
        self,
        queue: float,
        local: float,
        remote: float,
        send: float,
        *,
        request_bytes: int = 0,
        response_bytes: int = 0,
    ) -> None:
        """Count one answered request by its sizes and by the seconds of its parts."""
        recorded = self._recorded
        recorded.append((request_bytes, response_bytes, queue, local, remote, send))
        if len(recorded) >= _MAX_UNCOUNTED:
            self._count()

    def _count(self) -> None:
        if not self._recorded:
            return
        recorded, self._recorded = self._recorded, []
        request_bytes, response_bytes, queue, local, remote, send = zip(*recorded, strict=True)
        self._request_bytes += sum(request_bytes)
        self._response_bytes += sum(response_bytes)
        self._queue.observe_all(queue)
        self._local.observe_all(local)
        self._remote.observe_all(remote)
        self._send.observe_all(send)
        self._total.observe_all([sum(seconds) for seconds in zip(queue, local, remote, send, strict=True)])

    def count_errors_in_steps(self, response: Any) -> Steps[None]:
        """`count_errors` of a response with many elements."""
        return _count_in_steps(self.errors, response)


_CODE_FIELDS = ("error_code", "partition_error_code")

_Errors = dict[int, int]
ErrorCounter = Callable[[_Errors, Any], None]
"""Counts the errors that a response tells, by their codes."""


def count_error(errors: _Errors, code: int) -> None:
    errors[code] = errors.get(code, 0) + 1


def count_errors_of_partitions(errors: _Errors, response: Any) -> None:
    """Counts the errors of the partitions of `response.topics`, and nothing else."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                count_error(errors, partition.error_code)


def _count_in_steps(errors: _Errors, answer: Any) -> Steps[None]:
    """Count the errors of any response in steps: an element's own code, or those of the elements in it."""
    code = getattr(answer, "error_code", 0) or getattr(answer, "partition_error_code", 0)
    if code:
        count_error(errors, code)
        return
    for field in getattr(answer, "FIELDS", ()):
        if field.kind == "array" and isinstance(field.element, StructType) and _tells_errors(field.element):
            for item in getattr(answer, field.name) or ():
                yield from _count_in_steps(errors, item)
                yield


def error_counter(key: ApiKey) -> ErrorCounter:
    """Counts the errors of an API's response in the general way."""
    return _counter_of(response_class(key))


def _counter_of(struct: StructType) -> ErrorCounter:
    """Counts the struct's own code, and if that is no error or there is none, those of the elements of its lists."""
    code_name = next((field.name for field in struct.FIELDS if field.name in _CODE_FIELDS), None)
    lists = [
        (field.name, _counter_of(field.element))
        for field in struct.FIELDS
        if field.kind == "array" and isinstance(field.element, StructType) and _tells_errors(field.element)
    ]

    def count(errors: _Errors, answer: Any) -> None:
        code = 0 if code_name is None else getattr(answer, code_name)
        if code:
            count_error(errors, code)
            return
        for name, count_element in lists:
            for item in getattr(answer, name) or ():
                count_element(errors, item)

    return count


@cache
def _tells_errors(struct: StructType) -> bool:
    return any(
        field.name in _CODE_FIELDS
        or (field.kind == "array" and isinstance(field.element, StructType) and _tells_errors(field.element))
        for field in struct.FIELDS
    )

"""What is counted of each API's requests: how many, how large, how they failed, and where their time went.

The parts of a request's time are Kafka's (`kafka.network:type=RequestMetrics`):

- queue: from its last byte to the moment when work on it begins
- local: the work itself, with reading and writing files
- remote: waiting for others, in a purgatory or for a coordinator's log
- send: from the response to its last byte in the socket

Plain numbers that one task writes at a time; `/metrics` reads them when it is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.codec import Steps
from ottla.kproto.messages import response_class
from ottla.kproto.schema import StructType
from ottla.storage.histogram import BOUNDS_SECONDS, Histogram

_FIRST = BOUNDS_SECONDS[0]

PHASES = ("queue", "local", "remote", "send", "total")


class RequestMetrics:
    """The counters of one API; made when the API is first called."""

    __slots__ = (
        "count_errors",
        "errors",
        "local",
        "queue",
        "remote",
        "request_bytes",
        "response_bytes",
        "send",
        "total",
    )

    def __init__(self, counter: ErrorCounter) -> None:
        self.request_bytes = 0
        self.response_bytes = 0
        #: Answers by error code, those without an error not counted. One request may have several.
        self.errors: dict[int, int] = {}
        #: Counts the errors that a response tells.
        self.count_errors: Callable[[Any], None] = partial(counter, self.errors)
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.send = Histogram()
        self.total = Histogram()

    @property
    def requests(self) -> int:
        """How many requests were answered, or needed no answer."""
        return self.total.count

    def record(self, queue: float, local: float, remote: float, send: float) -> None:
        """Count one answered request by the seconds of its parts."""
        # Written out, for it is done for every request: most parts are in the first class, and calls cost.
        histogram = self.queue
        histogram.counts[0 if queue <= _FIRST else bisect_left(BOUNDS_SECONDS, queue)] += 1
        histogram.sum_seconds += queue
        histogram = self.local
        histogram.counts[0 if local <= _FIRST else bisect_left(BOUNDS_SECONDS, local)] += 1
        histogram.sum_seconds += local
        histogram = self.remote
        histogram.counts[0 if remote <= _FIRST else bisect_left(BOUNDS_SECONDS, remote)] += 1
        histogram.sum_seconds += remote
        histogram = self.send
        histogram.counts[0 if send <= _FIRST else bisect_left(BOUNDS_SECONDS, send)] += 1
        histogram.sum_seconds += send
        histogram = self.total
        total = queue + local + remote + send
        histogram.counts[0 if total <= _FIRST else bisect_left(BOUNDS_SECONDS, total)] += 1
        histogram.sum_seconds += total

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
    """What `_counter_of` counts, and the special ones: an element's own code, or those of the elements in it."""
    code = getattr(answer, "error_code", 0) or getattr(answer, "partition_error_code", 0)
    if code:
        count_error(errors, code)
        return
    for field in getattr(answer, "FIELDS", ()):
        if field.kind == "array" and isinstance(field.element, StructType) and _tells_errors(field.element):
            for number, item in enumerate(getattr(answer, field.name) or ()):
                yield from _count_in_steps(errors, item)
                if number & 127 == 127:
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

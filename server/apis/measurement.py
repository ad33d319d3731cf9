"""How long the phases of a request took and how large its messages are, for the metrics and the quotas."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.request_metrics import RequestMetrics


class RequestMeasurement:
    """The times of one request, from its last byte on. Made when that byte has arrived; times are `perf_counter`'s."""

    __slots__ = (
        "_answered_at",
        "_begun_at",
        "_handled_at",
        "_received_at",
        "_remote_seconds",
        "request_bytes",
        "response_bytes",
    )

    def __init__(self, request_bytes: int) -> None:
        self._received_at = self._begun_at = self._handled_at = perf_counter()
        self._answered_at = 0.0
        self._remote_seconds = 0.0
        self.request_bytes = request_bytes
        self.response_bytes = 0

    @property
    def worked_seconds(self) -> float:
        """How long this broker has worked on the request up to now, without waits for others."""
        return perf_counter() - self._begun_at - self._remote_seconds

    def begun(self) -> None:
        """A task begins to work on the request, which has waited until now."""
        self._begun_at = perf_counter()

    def handled(self) -> None:
        """The handler has returned."""
        self._handled_at = perf_counter()

    def waited(self) -> None:
        """All time since the handler returned was a wait for others."""
        self._remote_seconds += perf_counter() - self._handled_at

    def waited_meanwhile(self, seconds: float) -> None:
        """The handler has waited for others for this long."""
        self._remote_seconds += seconds

    def answered(self, response_bytes: int) -> None:
        """The response is encoded, or there is none to send."""
        self._answered_at = perf_counter()
        self.response_bytes = response_bytes

    def record(self, metrics: RequestMetrics | None) -> None:
        """The response has left: count the request, if it was answered and its API is counted."""
        begun_at, answered_at, remote = self._begun_at, self._answered_at, self._remote_seconds
        if metrics is None or not answered_at:
            return
        worked = answered_at - begun_at
        if remote > worked:
            # What a request has started in the background may note a wait during a later request.
            remote = worked
        metrics.record(
            begun_at - self._received_at,
            worked - remote,
            remote,
            perf_counter() - answered_at,
            request_bytes=self.request_bytes,
            response_bytes=self.response_bytes,
        )

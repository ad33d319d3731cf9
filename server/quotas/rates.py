"""How a quota is measured: a rate over windows, or a bucket of tokens. Times are seconds of one monotonic clock."""

from __future__ import annotations

from collections import deque


class Rate:
    """Amounts over the last `windows` windows (Kafka's SampledStat and Rate). Times never go back."""

    __slots__ = ("_samples", "_window_seconds", "_windows")

    def __init__(self, windows: int, window_seconds: float) -> None:
        self._windows = windows
        self._window_seconds = window_seconds
        #: (begin, amount) of each window in which something was recorded, oldest first.
        self._samples: deque[list[float]] = deque()

    def record(self, amount: float, now: float) -> None:
        """Count an amount; a negative one takes a count back."""
        if not self._samples or now - self._samples[-1][0] >= self._window_seconds:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount

    def measure(self, now: float) -> tuple[float, float]:
        """The rate per second, and the seconds that it is taken over: never less than all windows but one."""
        while self._samples and now - self._samples[0][0] >= self._windows * self._window_seconds:
            self._samples.popleft()
        span = self._span(now - self._samples[0][0] if self._samples else 0.0)
        return sum(amount for _, amount in self._samples) / span, span

    def _span(self, elapsed: float) -> float:
        missing = self._windows - 1 - int(elapsed / self._window_seconds)
        return elapsed + max(0, missing) * self._window_seconds or self._window_seconds

    def throttle_seconds(self, quota: float, now: float) -> float:
        """How long nothing may come until the rate is down to `quota`; 0 if it is not above it."""
        rate, span = self.measure(now)
        return (rate - quota) / quota * span if rate > quota else 0.0


class SimpleRate(Rate):
    """The same over the time in which something was recorded, one window at least (Kafka's SimpleRate).

    It knows of a burst at once, where `Rate` spreads it over windows in which nothing was.
    """

    __slots__ = ()

    def _span(self, elapsed: float) -> float:
        return max(elapsed, self._window_seconds)


class TokenBucket:
    """A rate that may be saved up and spent at once (Kafka's TokenBucket, KIP-599).

    It fills by the quota a second, up to what comes in over all windows, and begins full. What is taken may overdraw
    it: the next one waits until it is paid back.
    """

    __slots__ = ("_tokens", "_updated", "_windows_seconds")

    def __init__(self, windows: int, window_seconds: float) -> None:
        self._windows_seconds = windows * window_seconds
        self._tokens: float | None = None
        self._updated = 0.0

    def take(self, amount: float, quota: float, now: float) -> None:
        """Take tokens, whether they are there or not."""
        self._tokens = self._refilled(quota, now) - amount

    def throttle_seconds(self, quota: float, now: float) -> float:
        """How long it takes until the bucket is no longer overdrawn; 0 if it is not."""
        return max(0.0, -self._refilled(quota, now) / quota)

    def _refilled(self, quota: float, now: float) -> float:
        most = quota * self._windows_seconds
        tokens = most if self._tokens is None else min(most, self._tokens + quota * (now - self._updated))
        self._tokens, self._updated = tokens, now
        return tokens

"""What Trio does in each turn for a real process, and a simulation has no use for.

It asks the kernel for events, of which there are none, and at every step of a task whether somebody watches. A seed has
tens of thousands of turns. What runs when is the same.
"""

from __future__ import annotations

from typing import Any

__all__ = ["spare_the_kernel"]


def spare_the_kernel(runner: Any) -> None:
    """Let a run of Trio that begins now ask the kernel only when there is something: for a signal, or a finalizer."""
    runner.io_manager = _Events(runner)
    # Trio asks whether something is in it; a plain dict answers without running Python.
    runner.instruments = {}


class _Events:
    """Stands before Trio's I/O manager. All that comes from outside of tasks goes through the queue of the run."""

    def __init__(self, runner: Any) -> None:
        self._manager = runner.io_manager
        self._queue = runner.entry_queue

    def get_events(self, timeout: float) -> Any:
        return self._manager.get_events(timeout) if self._queue.queue or self._queue.idempotent_queue else ()

    def process_events(self, events: Any) -> None:
        if events:
            self._manager.process_events(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

"""What goes wrong with a broker under test."""

from __future__ import annotations


class BrokerError(Exception):
    """The broker refused what a test asked for, or is not there. `code` is Kafka's error code, or None."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class WaitTimeoutError(AssertionError, TimeoutError):
    """What a test waited for did not happen in time; the text says what was there instead."""

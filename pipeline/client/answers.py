"""What a broker's error codes mean for a job."""

from __future__ import annotations

from typing import Final

from ottla.kproto.errors import ErrorCode
from ottla.pipeline.errors import FencedError, PipelineError, TopicError

__all__ = ["RetriableError", "check"]

_FENCED: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)


class RetriableError(Exception):
    """A broker asked for another attempt."""


def check(code: int, what: object) -> None:
    """Raise what an answer's error code means.

    RetriableError if another attempt may help, FencedError if a transaction is over, else TopicError.
    """
    if code == ErrorCode.NONE:
        return
    try:
        error = ErrorCode(code)
    except ValueError:
        raise PipelineError(f"The broker answers with error {code} for {what}.") from None
    sentence = f"The broker answers {error.name} for {what}: {error.message}"
    if error.retriable and error is not ErrorCode.CORRUPT_MESSAGE:
        raise RetriableError(sentence)
    if error in _FENCED:
        raise FencedError(sentence)
    raise TopicError(sentence)

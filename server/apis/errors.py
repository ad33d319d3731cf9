"""Error codes and messages of exceptions. `kproto.error_responses` makes whole responses that carry only a code."""

from __future__ import annotations

from typing import Final

from ottla.kproto.error_responses import error_response as error_response
from ottla.kproto.error_responses import error_response_in_steps as error_response_in_steps
from ottla.kproto.errors import ApiError, ErrorCode

#: Longer texts could not be sent: a string holds 32,767 bytes, and names in it come from clients.
MAX_MESSAGE_LENGTH: Final = 4_000


def error_code(error: BaseException) -> ErrorCode:
    """The code of an exception; UNKNOWN_SERVER_ERROR for the unforeseen."""
    if isinstance(error, ApiError):
        return error.code
    # A disk that cannot be read.
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else ErrorCode.UNKNOWN_SERVER_ERROR


def error_message(error: BaseException) -> str:
    """The message of an error: its text, cut to a length that every client accepts."""
    return str(error)[:MAX_MESSAGE_LENGTH]

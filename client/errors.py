"""Errors of the client. Each text is one sentence for people: what happened, and where."""

from __future__ import annotations

import os

from ottla.kproto.errors import ErrorCode


class ClientError(Exception):
    """The request could not be carried out."""


class AddressError(ClientError):
    """A text is not an address."""


class ConnectionLostError(ClientError):
    """The connection is of no more use. Whether a request that had no answer yet was carried out is not known."""


class UnreachableError(ConnectionLostError):
    """No connection could be made: nothing was sent."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(f"no broker answers at {address} ({reason})")
        self.address = address
        self.reason = str(reason)


class UnexpectedAnswerError(ConnectionLostError):
    """The bytes received are no answer of a broker; nothing that follows them can be trusted."""


class RequestTimedOutError(ConnectionLostError):
    """No answer came in time. Answers come in order, so nothing after it would have come either."""


class AuthenticationError(ConnectionLostError):
    """The broker does not let this user in, or cannot show that it knows the password itself."""


class SecurityConfigError(ClientError):
    """The settings of TLS and SASL are wrong or incomplete."""


class UnsupportedVersionError(ClientError):
    """The broker serves no version of an API that this client knows, or none that can carry the request."""


class UnknownTopicError(ClientError):
    """There is no such topic."""

    def __init__(self, topic: str, *, nearest: str | None = None) -> None:
        hint = f"; did you mean {nearest}?" if nearest else ""
        super().__init__(f"there is no topic {topic!r}{hint}")
        self.topic = topic
        self.nearest = nearest
        """A topic with a similar name."""


def _text_of(code: int) -> str:
    known = ErrorCode.of(code)
    return known.message if known == code else "an error that this client does not know"


class BrokerError(ClientError):
    """A broker answered with an error code."""

    def __init__(self, code: int, message: str | None = None, *, what: str = "") -> None:
        name, text = ErrorCode.name_of(code), message or _text_of(code)
        super().__init__(f"{what}: {text} ({name})" if what else f"{text} ({name})")
        self.code = code


def system_reason(error: BaseException) -> str:
    """The system's reason within Trio's error for one or several attempts to connect, send or receive."""
    while error.__cause__ is not None:
        error = error.__cause__
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__

"""What the client raises."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode


class ClientError(Exception):
    """What was asked for could not be done. The text is one sentence for people: what happened and what to do."""


class BrokerError(ClientError):
    """A broker answered with an error code."""

    def __init__(self, code: int, message: str | None = None, *, what: str = "") -> None:
        try:
            known = ErrorCode(code)
            name, text = known.name, message or known.message
        except ValueError:
            name, text = f"error {code}", message or "an error that this client does not know"
        super().__init__(f"{what}: {text} ({name})" if what else f"{text} ({name})")
        self.code = code

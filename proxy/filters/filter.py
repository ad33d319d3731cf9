"""The interface of a filter.

A filter is made once, when the proxy starts, from its table in the configuration: the keys of the table are the keyword
arguments of its constructor, which raises ValueError or TypeError with a sentence if it cannot accept them. Its hooks
are methods::

    class NoDeletions(Filter):
        \"\"\"Topics stay.\"\"\"

        @request_hook(DeleteTopicsRequest)
        async def refuse(self, request: DeleteTopicsRequest, call: Call) -> None:
            raise RefusedByFilterError(ErrorCode.POLICY_VIOLATION, "topics are not deleted here")

A hook returns None to leave the message alone; or it returns the message, changed, or a different one, which is
forwarded in its place; or, for a request, a response, which answers it here and now. Filters see requests in the order
in which they are configured, and responses in reverse. The hooks for requests of one connection run one after the
other, and so do those for its responses; everything else may overlap where it awaits. Only messages with a hook are
parsed at all. No filter sees what clients send before it is known who they are (ApiVersions, SaslHandshake,
SaslAuthenticate).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import Request, Response
from ottla.proxy.login import ANONYMOUS

if TYPE_CHECKING:
    from ottla.kproto.api_keys import ApiKey

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Response)
F = TypeVar("F")
RequestHook = Callable[[F, Q, "Call"], Awaitable[Request | Response | None]]
ResponseHook = Callable[[F, A, "Call"], Awaitable[Response | None]]

_SHOWN_ERRORS: Final = 3
_MARK: Final = "ottla_filter_hook"


class RefusedByFilterError(Exception):
    """Raised by a hook for a request: it is not forwarded; its client gets this error for everything it asked for."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.message)
        self.code = code


class InvalidRecordsError(RefusedByFilterError):
    """Raised for a batch with invalid records: its producer gets INVALID_RECORD and learns which ones they are
    (KIP-467).

    `wrong` says what is wrong with each of them, by its index in the batch.
    """

    def __init__(self, wrong: Sequence[tuple[int, str]]) -> None:
        shown = ", ".join(f"RecordError(batchIndex={it}, message='{why}')" for it, why in wrong[:_SHOWN_ERRORS])
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(wrong)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
        )
        self.wrong = wrong


class Client(NamedTuple):
    """The client of a connection, and the port of the proxy (`bootstrap`, `broker-1`, …).

    `principal` is whom the client has authenticated as, such as `User:alice`; `User:ANONYMOUS` if no login was
    required, and empty if only upstream knows.
    """

    peer: str
    listener: str
    principal: str = ANONYMOUS


class Call:
    """One request, until it is answered. `notes` is for whatever a filter wants to remember until the answer comes."""

    __slots__ = ("client", "client_id", "key", "notes", "version")

    def __init__(self, key: ApiKey, version: int, client_id: str | None, client: Client) -> None:
        self.key = key
        self.version = version
        self.client_id = client_id
        self.client = client
        self.notes: dict[object, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.key.name} v{self.version} of {self.client_id!r} from {self.client.peer}>"


def request_hook(message: type[Q]) -> Callable[[RequestHook[F, Q]], RequestHook[F, Q]]:
    """Makes a method a hook for the requests of an API."""
    return _marking("request", message.API_KEY)


def response_hook(message: type[A]) -> Callable[[ResponseHook[F, A]], ResponseHook[F, A]]:
    """Makes a method a hook for the responses of an API."""
    return _marking("response", message.API_KEY)


def _marking(direction: str, key: ApiKey) -> Callable[[Any], Any]:
    def mark(method: Any) -> Any:
        setattr(method, _MARK, (direction, key))
        return method

    return mark


class Filter:
    """The base of all filters. As it is, it does nothing.

    A filter for many APIs overrides `requests` and `responses`, and `on_request` and `on_response`.
    """

    #: Whether hooks look at topic names. If so, clients are not offered versions that have ids instead.
    NEEDS_TOPIC_NAMES: ClassVar[bool] = False
    _HOOKS: ClassVar[dict[tuple[str, ApiKey], str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hooks = dict(cls._HOOKS)
        for name, method in vars(cls).items():
            marked = getattr(method, _MARK, None)
            if marked is not None:
                hooks[marked] = name
        cls._HOOKS = hooks

    def requests(self) -> frozenset[ApiKey]:
        """The APIs whose requests it wants; asked once."""
        return frozenset(key for direction, key in self._HOOKS if direction == "request")

    def responses(self) -> frozenset[ApiKey]:
        """The APIs whose responses it wants; asked once."""
        return frozenset(key for direction, key in self._HOOKS if direction == "response")

    def offers(self, key: ApiKey) -> bool:
        """Whether clients are offered an API at all; one that is not offered is refused."""
        return True

    def for_client(self, client: Client) -> Filter:
        """The filter for one connection: this object, or another one with state of its own."""
        return self

    async def on_request(self, request: Any, call: Call) -> Request | Response | None:
        """Called with each request that it wants. See above for what it may return and raise."""
        name = self._HOOKS.get(("request", call.key))
        return None if name is None else await getattr(self, name)(request, call)

    async def on_response(self, response: Any, call: Call) -> Response | None:
        """Called with each response that it wants; returning None leaves it alone."""
        name = self._HOOKS.get(("response", call.key))
        return None if name is None else await getattr(self, name)(response, call)


def pattern(name: str, text: Any) -> re.Pattern[str]:
    """A regular expression from the configuration. Raises ValueError or TypeError, with a sentence."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: {text!r} is not a regular expression")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{name}: {text!r} is not a regular expression: {error}") from None

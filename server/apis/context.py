"""One request under way, as a handler sees it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from ottla.kproto.errors import DecodeError, ErrorCode
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.work import Work
from ottla.security.access import Access
from ottla.server.apis.errors import error_response
from ottla.server.apis.measurement import RequestMeasurement
from ottla.server.apis.pending import UNBEGUN, InStages, Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.kproto.codec import Begun
    from ottla.kproto.headers import RequestHeader
    from ottla.kproto.schema import Request, Response
    from ottla.security.sasl import Sasl
    from ottla.server.apis.connected_client import ConnectedClient
    from ottla.server.apis.pending import Answer
    from ottla.server.apis.served_api import ServedApi
    from ottla.server.broker import Broker
    from ottla.storage.memory.iobuf import Fragment

logger = logging.getLogger(__name__)

# An answer to a request of fewer elements is encoded at once.
_ENCODED_AT_ONCE_ELEMENTS: Final = 256


class Releasable(Protocol):
    """Something that holds memory which a response refers to."""

    def release(self) -> None: ...


class RequestFrame(Releasable, Protocol):
    """A request's bytes without their length prefix, and the memory that holds them."""

    @property
    def body(self) -> memoryview | bytes | bytearray: ...

    @property
    def fragment(self) -> Fragment | None: ...


class RequestConnection(Protocol):
    """The connection of a request, as its handler sees it."""

    client: ConnectedClient
    #: None where the listener asks for no authentication.
    sasl: Sasl | None

    @property
    def recurring_end(self) -> int:
        """The end of the recurring part of its requests, from the last one that may recur; 0 before."""

    def recurs(self, end: int) -> None:
        """Its next requests may differ from the last one only from `end` on."""

    @property
    def was_held_up(self) -> bool:
        """Whether a Produce has waited for room: those that came behind it may have been given up meanwhile."""

    def held_up(self) -> None:
        """A Produce waits for room, or has waited."""

    @property
    def sends_files(self) -> bool:
        """Whether parts of an answer may be ranges of files."""

    @property
    def is_awaited(self) -> bool:
        """Whether somebody is there to receive an answer."""

    def mute(self, seconds: float) -> None:
        """Do not read from the connection for this long from now on."""

    def on_close(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection ends; it replaces the one of the same key."""


class RequestContext:
    """A request: its connection, the broker that serves it, and the memory that it and its response use.

    The frame is held until the response has been sent (or was given up): views of the request are valid that long. To
    keep one longer, retain `fragment`. Memory that a response refers to is handed over with `release_after_send`.
    """

    __slots__ = (
        "_frame",
        "_held",
        "access",
        "api",
        "body_start",
        "broker",
        "connection",
        "counted",
        "header",
        "measurement",
        "request",
        "response",
        "when_kept",
    )

    def __init__(
        self,
        api: ServedApi,
        header: RequestHeader,
        body_start: int,
        frame: RequestFrame,
        connection: RequestConnection,
        broker: Broker,
        request: Request | None = None,
    ) -> None:
        """With a `request`, that is what parsing the frame would give."""
        self.api = api
        self.header = header
        self.body_start = body_start
        self.connection = connection
        self.broker = broker
        #: For the dispatcher: what was parsed, and what the handler has returned.
        self.request = request
        self.response: Answer = UNBEGUN
        #: What the sender may do; None where everybody may do everything.
        self.access: Access | None = None
        if broker.authorizer is not None:
            client = connection.client
            self.access = Access(broker.authorizer, client.principal, client.host, api.key.name)
            # What it may not do is taken out of a request of its own.
            self.request = None
        self._frame: RequestFrame | None = frame
        self._held: list[Releasable] | None = None
        #: The work that was counted; None if there was none.
        self.counted: Work | None = None
        self.measurement = RequestMeasurement(len(frame.body))
        #: For the dispatcher: see `call_when_kept`.
        self.when_kept: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"{self.api.key.name} v{self.header.api_version} from {self.connection!r}"

    @property
    def frame(self) -> memoryview | bytes | bytearray:
        """The request's bytes, header included."""
        assert self._frame is not None
        return self._frame.body

    @property
    def fragment(self) -> Fragment | None:
        """The memory that every view of the request looks into; None where nobody will use it for anything else."""
        assert self._frame is not None
        return self._frame.fragment

    @property
    def work(self) -> Work:
        """The counter of the work on this request, which divides it into slices."""
        if self.counted is None:
            self.counted = Work(self.broker.large_request_queue)
        return self.counted

    @property
    def principal(self) -> str:
        """Who sent it, as `type:name`."""
        return self.connection.client.principal

    @property
    def listener(self) -> str:
        """The name of the listener through which it came."""
        return self.connection.client.listener

    @property
    def client_host(self) -> str:
        """The peer's address, as Kafka prints it: with a leading slash."""
        return f"/{self.connection.client.host}"

    # For the dispatcher ---------------------------------------------------------------------------------------------

    def parse(self) -> None:
        """Parse the request at once. Raises CloseConnectionError."""
        assert self._frame is not None
        try:
            self.request = self.api.parse(self.header.api_version, self._frame.body, self.body_start)
        except DecodeError as error:
            raise self._undecodable(error) from None

    def parse_lone(self) -> bool:
        """Parse the request at once if it names one thing; False if it does not."""
        self.request = self.api.parse_lone(self.header.api_version, self.frame, self.body_start)
        return self.request is not None

    async def parse_in_steps(self, begun: Begun) -> None:
        """Parse a large request. Raises CloseConnectionError; what it was to have been is left in `begun` then."""
        version = self.header.api_version
        try:
            self.request = await self.work.run(self.api.parse_in_steps(version, self.frame, self.body_start, begun))
        except DecodeError as error:
            raise self._undecodable(error) from None

    def _undecodable(self, error: DecodeError) -> CloseConnectionError:
        return CloseConnectionError(
            f"a {self.api.key.name} v{self.header.api_version} request cannot be decoded: {error}"
        )

    def replace(self, request: Request) -> None:
        """Have this request handled in place of the one that was parsed."""
        self.request = request

    def respond(self, response: Response | None) -> None:
        """Answer with this; the handler is not called."""
        self.response = response

    def refuse(self, code: ErrorCode) -> Response:
        """The whole request fails: for a fault of this broker, or because it may not be handled now."""
        assert self.request is not None
        response = error_response(self.request, self.header.api_version, code)
        if response is None:
            raise CloseConnectionError(
                f"{self.api.key.name} failed with {code.name} and has no answer that could say so"
            )
        self.response = response
        return response

    def fail(self, error: Exception) -> Response:
        """Answer after a fault of this broker, which is logged. Raises an error that closes the connection."""
        if isinstance(error, CloseConnectionError):
            raise error
        keys = {
            "api": self.api.key.name.lower(),
            "client": repr(self.connection),
            "client_id": self.header.client_id,
            "listener": self.listener,
        }
        logger.exception("could not answer %r", self, extra=keys)
        return self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def begin(self, handle: Callable[[RequestContext], Answer]) -> None:
        """Call the handler, unless the request has its response."""
        if self.api.lets_frame_go:
            self._let_go_of_frame()
        if self.response is UNBEGUN:
            try:
                self.response = handle(self)
            except Exception as error:  # noqa: BLE001 - it is logged
                self.fail(error)

    async def dispatch(self) -> None:
        """Go on, in this task, until the connection's next request may be taken."""
        answer = self.response
        if isinstance(answer, Pending) and not answer.is_dispatched:
            try:
                self.response = await answer.dispatch()
            except Exception as error:  # noqa: BLE001 - it is logged
                self.fail(error)

    async def wait(self) -> None:
        """Wait until a request that is dispatched has its response. Raises CloseConnectionError."""
        if self.is_ready:
            return
        assert isinstance(self.response, Pending)
        try:
            await self.response.wait()
        except Exception as error:  # noqa: BLE001 - it is logged
            self.fail(error)

    def is_finished(self) -> bool:
        """Whether a request was begun and has its response, which may be encoded at once; goes on with it if it has
        waited in no task, and that is over. Raises CloseConnectionError.
        """
        answer = self.response
        if isinstance(answer, Pending):
            if answer.is_dispatched:
                if not answer.is_ready:
                    return False
            elif not isinstance(answer, InStages) or not answer.is_over or not self._step(answer):
                return False
        return self.counted is None or not self.is_large

    def _step(self, waited: InStages) -> bool:
        """Go on after a wait; whether that was the last one."""
        self.measurement.waited()
        try:
            self.response = waited.step()
        except Exception as error:  # noqa: BLE001 - it is logged
            self.fail(error)
        self.measurement.handled()
        return self.response is not waited

    def finish(self) -> Response | None:
        """The response of a request that is finished."""
        response = self.response
        if isinstance(response, Pending):
            response = self.response = response.response()
            self.measurement.waited()
        return response

    def forget_messages(self) -> list[Request | Response]:
        """Hand over the request and its response, which are not looked at any more."""
        assert not isinstance(self.response, Pending)
        messages = [it for it in (self.request, self.response) if it is not None]
        self.request = self.response = None
        return messages

    # ----------------------------------------------------------------------------------------------------------------

    def leave_queue(self) -> None:
        """The answer waits for others from here on: other large requests may be worked on."""
        if self.counted is not None:
            self.counted.leave_queue()

    def _let_go_of_frame(self) -> None:
        """What was parsed does not need the frame any more, and the answer may take minutes."""
        frame, self._frame = self._frame, None
        if frame is not None:
            frame.release()

    def release_after_send(self, held: Releasable) -> None:
        """Release `held` when the response has left or was given up."""
        if self._held is None:
            self._held = [held]
        else:
            self._held.append(held)

    def call_when_kept(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the response goes out, and no empty one instead because of a quota. Nothing else
        runs between the handler's return and this call.
        """
        self.when_kept = callback

    @property
    def is_begun(self) -> bool:
        """Whether its handler was called, or need not be."""
        return self.response is not UNBEGUN

    @property
    def is_dispatched(self) -> bool:
        """Whether it was begun and leaves its place to the connection's next request."""
        return not isinstance(self.response, Pending) or self.response.is_dispatched

    @property
    def is_left_to_pump(self) -> bool:
        """For the connection: whether it calls when it can go on, and needs no task until then."""
        response = self.response
        if isinstance(response, InStages):
            return response.is_called
        return self.api.is_pipelined and not self.is_large and self.is_dispatched

    @property
    def is_large(self) -> bool:
        """Whether its answer is encoded in steps."""
        return self.counted is not None and self.counted.elements > _ENCODED_AT_ONCE_ELEMENTS

    @property
    def is_ready(self) -> bool:
        """Whether a request that was begun can be answered without waiting."""
        return not isinstance(self.response, Pending) or self.response.is_ready

    def release(self) -> None:
        """For the connection: give back the frame and everything held for the response."""
        response, self.response = self.response, None  # it may refer to this context: without the cycle both die here
        self.when_kept = None
        if isinstance(response, Pending):
            response.give_up()
        if self.counted is not None:
            self.counted.leave_queue()
        try:
            if self._held is not None:
                held, self._held = self._held, None
                for item in held:
                    item.release()
        finally:
            if self._frame is not None:
                self._frame.release()

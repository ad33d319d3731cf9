"""One request under way, as a handler sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from ottla.kproto.headers import RequestHeader
    from ottla.server.broker import Broker
    from ottla.server.connection import Connection
    from ottla.server.dispatch import Api
    from ottla.server.receiver import Frame
    from ottla.storage.iobuf import Fragment


class Releasable(Protocol):
    """Something that holds memory which a response refers to."""

    def release(self) -> None: ...


class RequestContext:
    """Where a request came from, what serves it, and the memory that it and its response stand on.

    The frame is held until the response has been sent (or was given up): views of the request are valid that long, and
    whoever keeps one longer retains `fragment`. Memory that a response refers to is handed over
    with `release_after_send`.
    """

    __slots__ = ("_appended", "_frame", "_held", "api", "body_start", "broker", "connection", "header")

    def __init__(
        self,
        api: Api,
        header: RequestHeader,
        body_start: int,
        frame: Frame,
        connection: Connection,
        broker: Broker,
    ) -> None:
        self.api = api
        self.header = header
        self.body_start = body_start
        self.connection = connection
        self.broker = broker
        self._frame = frame
        self._held: list[Releasable] | None = None
        self._appended: trio.Event | None = None

    @property
    def frame(self) -> memoryview:
        """The request's bytes, header included."""
        return self._frame.body

    @property
    def fragment(self) -> Fragment:
        """The memory that every view of the request looks into."""
        return self._frame.fragment

    @property
    def principal(self) -> str:
        """Who sent it, as `type:name`."""
        return self.connection.principal

    @property
    def listener(self) -> str:
        """The name of the listener through which it came."""
        return self.connection.listener

    @property
    def client_host(self) -> str:
        """The peer's address, as Kafka prints it: with a leading slash."""
        return f"/{self.connection.peer_host}"

    def release_after_send(self, held: Releasable) -> None:
        """Release `held` when the response has left or was given up."""
        if self._held is None:
            self._held = [held]
        else:
            self._held.append(held)

    def appended(self) -> None:
        """Say that the part of a pipelined request which must keep its place in the connection's order is done.

        The connection then takes the next request while this one waits for its flush. Without this call the next one
        begins when this one is answered. Calling it twice is harmless.
        """
        if self._appended is not None:
            self._appended.set()

    def expect_appended(self) -> trio.Event:
        """For the connection: the event that `appended` sets."""
        self._appended = trio.Event()
        return self._appended

    def release(self) -> None:
        """For the connection: give back the frame and everything held for the response."""
        held, self._held = self._held, None
        try:
            for item in held or ():
                item.release()
        finally:
            self._frame.release()

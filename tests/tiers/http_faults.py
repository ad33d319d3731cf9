"""An HTTP proxy that fails on purpose, before a server with the interface of S3."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)
NOT_PASSED_ON = frozenset(("connection", "transfer-encoding", "content-length"))


class Fault(Enum):
    """What becomes of one request."""

    NONE = "none"
    #: Not carried out.
    SERVER_ERROR = "500"
    SLOW_DOWN = "503"
    RESET = "reset"
    #: Carried out, and the answer does not come, or only a half of it.
    LOST_ANSWER = "lost answer"
    LOST_ANSWER_500 = "lost answer, told as 500"
    HALF_ANSWER = "half answer"


REFUSED = {Fault.SERVER_ERROR: 500, Fault.SLOW_DOWN: 503}


def no_fault(method: str, path: str) -> Fault:
    """Every request is passed on."""
    return Fault.NONE


class FaultyProxy:
    """Asks `choose` of each request (method, path) what becomes of it, and counts what it did."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.choose: Callable[[str, str], Fault] = no_fault
        self.faults: list[Fault] = []

    def let_all_pass(self) -> None:
        """From now on nothing fails, and what has is forgotten."""
        self.choose = no_fault
        self.faults.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: FaultyProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        return  # the client has gone


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            fault = self.server.proxy.choose(self.command, self.path)
            self.server.proxy.faults.append(fault)
        if fault in REFUSED:
            self.refuse(REFUSED[fault])
        elif fault is Fault.RESET:
            self.cut()
        else:
            self.carry_out(body, fault)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_request  # noqa: N815

    def carry_out(self, body: bytes, fault: Fault) -> None:
        try:
            status, headers, content = self.ask(body)
        except (HTTPException, OSError):
            return self.cut()
        if fault is Fault.LOST_ANSWER:
            self.cut()
        elif fault is Fault.LOST_ANSWER_500:
            self.refuse(500)
        else:
            self.answer(status, headers, content, is_half=fault is Fault.HALF_ANSWER and len(content) > 1)
        return None

    def ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(urlsplit(self.server.proxy.endpoint).netloc, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, is_half: bool) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in NOT_PASSED_ON:
                self.send_header(name, value)
        length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if is_half else content)
        if is_half:
            self.wfile.flush()
            self.cut()

    def refuse(self, status: int) -> None:
        content = b"<Error><Code>SlowDown</Code></Error>"
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")

    def cut(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.connection.close()

    def finish(self) -> None:
        with suppress(OSError, ValueError):  # it was cut
            super().finish()

    def log_message(self, *arguments: Any) -> None:
        return


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[tuple[FaultyProxy, str]]:
    """The proxy, and its address."""
    proxy = FaultyProxy(endpoint)
    with _Server(proxy) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

"""`ottla test-broker`: the broker of `ottla.testing` for tests in other languages, which control it over HTTP.

It prints one line of JSON when it answers: where clients connect, and the address of the control port. A test suite
starts it once, resets it between tests, and ends it by SIGTERM, by DELETE /, or by ending itself (`--with-parent`).

| request | does |
|---|---|
| GET / | says where the broker is, and its topics and groups |
| POST /reset | makes the broker as new: no topics, groups, transactions, quotas or faults |
| POST /topics | creates a topic: `{"name": "orders", "partitions": 3, "configs": {"cleanup.policy": "compact"}}` |
| POST /faults | adds a fault: `{"fault": "fail", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}` |
| DELETE /faults | lifts all of them |
| POST /clock | sets its time forward: `{"seconds": 3600}` |
| POST /restart, /stop, /start | restarts, stops or starts it; port and data stay the same |
| DELETE / | ends it |

`fault` is delay, fail, drop_connections, throttle or fail_disk, with the arguments of `ottla.testing`'s faults. A body
is JSON and says so in its content type, which keeps web pages of other sites out. A refused request is answered with
status 400 and a sentence.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from ottla.testing.broker import Broker
from ottla.testing.errors import BrokerError

_MAX_BODY_BYTES: Final = 1_048_576
_REQUEST_SECONDS: Final = 60.0
_FAULTS: Final = ("delay", "fail", "drop_connections", "throttle", "fail_disk")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, help="the broker's port (default 0: any free port)")
    parser.add_argument(
        "--control-port", type=int, default=0, metavar="PORT", help="the port for HTTP control (default: any free port)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; may be repeated")
    parser.add_argument(
        "--user", action="append", default=[], metavar="NAME=PASSWORD", help="a user who may connect; may be repeated"
    )
    parser.add_argument(
        "--acl",
        action="append",
        metavar="ENTRY",
        help="what users may do, as 'alice read topic:orders'; may be repeated",
    )
    parser.add_argument("--tls", action="store_true", help="encrypt; the ready line names the authority to trust")
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="end when standard input is closed, which happens when the parent process ends",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to end. The exit code is 0, or 1 if it did not start."""
    try:
        config = dict(_pair("--set", text) for text in arguments.set)
        users = dict(_pair("--user", text) for text in arguments.user) or None
        with (
            Broker(config=config, users=users, acls=arguments.acl, tls=arguments.tls, port=arguments.port) as broker,
            Control(broker, arguments.control_port) as control,
        ):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: control.end())
            if arguments.with_parent:
                threading.Thread(target=_end_with_parent, args=(control,), daemon=True).start()
            host, _, port = broker.bootstrap.rpartition(":")
            ready = {"event": "ready", "host": host, "port": int(port), "control": control.url}
            if broker.certificate_authority is not None:
                ready["certificate_authority"] = broker.certificate_authority
            sys.stdout.write(json.dumps(ready) + "\n")
            sys.stdout.flush()
            control.serve()
    except (BrokerError, OSError, ValueError) as error:
        sys.stderr.write(f"ottla test-broker: {error}\n")
        return 1
    return 0


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{option} {text}: write NAME=VALUE")
    return name, value


def _end_with_parent(control: Control) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    control.end()


class Control:
    """The HTTP port of one broker, on 127.0.0.1. Its requests are served one at a time."""

    def __init__(self, broker: Broker, port: int = 0) -> None:
        self._broker = broker
        self._turn = threading.Lock()
        self._server = _Server(port, self)

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self._server.server_address[:2])

    def serve(self) -> None:
        """Answer requests until `end`."""
        self._server.serve_forever(poll_interval=0.1)

    def end(self) -> None:
        """Make `serve` return soon; may be called from a signal handler."""
        threading.Thread(target=self._server.shutdown, daemon=True).start()

    def do(self, method: str, path: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Carry out a request; None if there is no such thing. Raises BrokerError, TypeError or ValueError to refuse
        it.
        """
        action = self._actions().get((method, path))
        if action is None:
            return None
        with self._turn:
            result = action(**body)
        return result if isinstance(result, Mapping) else {}

    def _actions(self) -> Mapping[tuple[str, str], Callable[..., object]]:
        broker = self._broker
        return {
            ("GET", "/"): self._about,
            ("POST", "/reset"): broker.reset,
            ("POST", "/topics"): broker.create_topic,
            ("POST", "/faults"): self._add_fault,
            ("DELETE", "/faults"): broker.faults.clear,
            ("POST", "/clock"): broker.clock.advance,
            ("GET", "/schema-registry"): self._schema_registry,
            ("POST", "/restart"): broker.restart,
            ("POST", "/stop"): broker.stop,
            ("POST", "/start"): broker.start,
            ("DELETE", "/"): self.end,
        }

    def _about(self) -> Mapping[str, Any]:
        broker = self._broker
        if not broker.is_running:
            return {"running": False}
        groups = {name: summary.state for name, summary in broker.groups().items()}
        return {"running": True, "bootstrap": broker.bootstrap, "topics": broker.topics(), "groups": groups}

    def _schema_registry(self) -> Mapping[str, Any]:
        return {"url": self._broker.schema_registry_url}

    def _add_fault(self, fault: str, **details: Any) -> None:
        if fault not in _FAULTS:
            raise ValueError(f"{fault!r} is not a fault: take {', '.join(_FAULTS)}")
        getattr(self._broker.faults, fault)(**details)


class _Server(ThreadingHTTPServer):
    """An HTTP server that knows the control object, for its handlers."""

    daemon_threads = True

    def __init__(self, port: int, control: Control) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.control = control


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        assert isinstance(self.server, _Server)
        try:
            result = self.server.control.do(method, self.path, self._body())
        except (BrokerError, TypeError, ValueError) as error:
            self._send(HTTPStatus.BAD_REQUEST, {"error": str(error)})
            return
        if result is None:
            self._send(HTTPStatus.NOT_FOUND, {"error": f"there is no {method} {self.path}"})
        else:
            self._send(HTTPStatus.OK, result)

    def _body(self) -> Mapping[str, Any]:
        size_bytes = int(self.headers.get("content-length") or 0)
        if not size_bytes:
            return {}
        if size_bytes > _MAX_BODY_BYTES:
            raise ValueError(f"a body may have at most {_MAX_BODY_BYTES} bytes")
        if self.headers.get_content_type() != "application/json":
            raise ValueError("the content type is not application/json")
        body = json.loads(self.rfile.read(size_bytes))
        if not isinstance(body, dict):
            raise TypeError("the body is not a JSON object")
        return body

    def _send(self, status: HTTPStatus, body: Mapping[str, Any]) -> None:
        content = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Requests of a test are not worth a log line."""

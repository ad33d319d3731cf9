"""A broker as a process of its own: started, awaited until it answers, stopped, killed and started again."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeAlias

from tests.forked import Forked

Process: TypeAlias = subprocess.Popen[str] | Forked
"""What runs a broker."""

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.02


class BrokerStartError(Exception):
    """The broker's process ended, or did not answer in time; the message has the end of its log."""


class BrokerProcess:
    """One broker on one data folder. As a context manager it is running inside and stopped after.

    `port` stays the same over `stop` or `kill` and the next `start`, so clients find it again.
    Subclasses say which command runs it (`command`) and when it is ready (`await_ready`).
    """

    name = "broker"
    #: Whether it is several nodes, over which partitions and coordinators are spread.
    is_cluster = False
    start_timeout_s = 120.0

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port
        self.log_path = folder / "broker.log"
        self._process: Process | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def has_ended(self) -> bool:
        """Whether its process ended by itself, since it was started."""
        return self._process is not None and self._process.poll() is not None

    def command(self) -> list[str]:
        raise LookupError(f"{type(self).__name__} does not say how it is run")

    def await_ready(self, process: Process, deadline: float) -> None:
        """Returns once clients are answered; raises BrokerStartError at the deadline (time.monotonic)."""
        await_metadata(self.port, process, deadline)

    def start(self) -> None:
        self.spawn()
        self.await_started()

    def spawn(self) -> None:
        """Begin its process, and do not wait for it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("a") as log:
            self._process = self.begin(log)

    def begin(self, log: IO[str]) -> Process:
        """Its process, in a session of its own, so that `kill` leaves nothing behind of one that is several."""
        return subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)

    def await_started(self) -> None:
        """Wait until it is ready. BrokerStartError, and nothing left behind, if it does not come to that."""
        try:
            self.await_ready(self._running(), time.monotonic() + self.start_timeout_s)
        except BrokerStartError as error:
            self.kill()
            raise BrokerStartError(f"{self.name}: {error}\n{self.log_tail()}") from error

    def stop(self) -> int:
        """Ends it as an operator would, by SIGTERM; its exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            return self._end(process)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """kill -9: no goodbye, no flush."""
        process = self._running()
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has not come to its session yet
            process.kill()
        self._end(process)

    def wait(self) -> int:
        """Waits until it ends by itself; its exit code."""
        return self._running().wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_tail(self, lines: int = 30) -> str:
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _end(self, process: Process) -> int:
        code = process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return code

    def _running(self) -> Process:
        assert self._process is not None, f"{self.name} is not running"
        return self._process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()


def free_port() -> int:
    """A port of 127.0.0.1 that stays free until somebody listens on it, and while who does is down.

    It is below those that Linux gives to listeners on port 0, and to outgoing connections: a JVM takes seconds to
    listen, in which others would be given its port; and a connection to a port at which nobody listens may be given
    that very port, is connected to itself then, and holds it.
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, random.randint(20_000, 32_000)))
            port: int = probe.getsockname()[1]
            return port


def await_metadata(port: int, process: Process, deadline: float) -> None:
    """Asks for Metadata until an answer names a broker."""
    while True:
        if process.poll() is not None:
            raise BrokerStartError(f"ended with exit code {process.returncode} before it answered")
        if brokers_in_metadata(port) > 0:
            return
        if time.monotonic() > deadline:
            raise BrokerStartError("did not answer a Metadata request in time")
        time.sleep(POLL_INTERVAL_S)


def brokers_in_metadata(port: int) -> int:
    """How many brokers a Metadata v4 request for no topics names; 0 if it is not answered."""
    body = struct.pack(">hhih5s", 3, 4, 1, 5, b"ready") + struct.pack(">i?", 0, False)
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb").read(16)
    except OSError:
        return 0
    if len(answer) < 16:
        return 0
    count: int = struct.unpack(">iiii", answer)[3]
    return count

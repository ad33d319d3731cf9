"""A node as a process of its own, for what can only happen to a process: being killed, or frozen."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.testing.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 20.0


def _environment() -> dict[str, str]:
    """The environment without OTTLA_ settings, which a broker in this process does not read, either."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}


class NodeProcess:
    """Starts and ends `ottla serve` on the same folder and port, one process after the other. Its standard error goes
    to a file in its folder.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        data_dir: Path,
        log_name: str = "broker.log",
        *,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """`secrets` are settings that are passed in a file, so that the list of processes does not show them."""
        self._settings = dict(settings)
        self._secrets = dict(secrets or {})
        self._log_path = data_dir / log_name
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None
        self.address: tuple[str, int] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Raises BrokerError if it is not running."""
        return self._running().pid

    def start(self) -> None:
        """Start a process; returns when it serves. Raises BrokerError if it cannot."""
        self.begin()
        self.await_ready()

    def begin(self) -> None:
        """Start a process, and do not wait for it."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "ottla.cli", "serve", "--data-dir", str(self._data_dir)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        if self._secrets:
            command += ["--config", str(self._written_secrets())]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment())

    def _written_secrets(self) -> Path:
        path = self._log_path.with_suffix(".properties")
        path.touch(0o600)
        escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in self._secrets.items()}
        path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
        return path

    def await_ready(self) -> None:
        """Wait until the process serves. Raises BrokerError if it cannot."""
        self.address = self._read_ready(self._running())
        first, *others = self._settings["listeners"].split(",")
        protocol, _, given = first.partition("://")
        if given.endswith(":0"):  # the next process shall have the port that this one was given
            self._settings["listeners"] = ",".join(["{}://{}:{}".format(protocol, *self.address), *others])

    def _read_ready(self, process: subprocess.Popen[str]) -> tuple[str, int]:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if selector.select(_START_SECONDS) else ""
        if not line:
            self.kill()
            told = self._log_path.read_text(errors="replace").strip().splitlines()
            raise BrokerError(f"the broker did not start: {told[-1] if told else 'it said nothing'}")
        ready = json.loads(line)
        return ready["host"], ready["port"]

    def stop(self) -> None:
        """End it in order, by SIGTERM; if it does not end in time, it is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it by SIGKILL, whatever it is doing."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, and nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # a frozen one would not notice
        deadline = time.monotonic() + _STOP_SECONDS
        try:
            process.wait(deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()

"""Where the simulator's clients live when the cluster is real."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

import trio

from ottla.simulation.cluster.histories.client_environment import Connect
from ottla.simulation.cluster.histories.history import History

__all__ = ["Real"]

_LAST_LINES: Final = 200


class Real:
    """`Surroundings`. What clients tell goes to a file; `findings` is empty if all is well."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]], seed: int, log: Path) -> None:
        self.addresses = addresses
        self.rng = Random(seed)
        self.is_ending = False
        self.is_tiered = False
        self.findings: list[str] = []
        #: All that lives with the clients; cancelled at the first finding.
        self.scope = trio.CancelScope()
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._log = log.open("w", buffering=1)
        self._began = trio.current_time()
        self.history = History(self)

    def new_client(self) -> Connect:
        async def connect(host: str, port: int) -> trio.abc.Stream:
            return await trio.open_tcp_stream(host, port)

        return connect

    def note(self, text: str) -> None:
        line = f"{trio.current_time() - self._began:9.3f} {text}"
        self.last.append(line)
        self._log.write(f"{line}\n")

    def fail(self, finding: str, cause: BaseException | None = None) -> None:
        told = finding if cause is None else f"{finding}: {cause!r}"
        self.note(f"FINDING {told}")
        self.findings.append(told)
        self.scope.cancel()

    def check(self, condition: bool, finding: str) -> None:
        if not condition:
            self.fail(finding)

    def close(self) -> None:
        self._log.close()

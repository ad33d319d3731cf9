"""franz-go as producer, consumer and mover of records, by way of compat_tests/go/flow/main.go."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from compat_tests.clients.franz_go import PROGRAM

FLOW = PROGRAM.with_name("flow")


class FranzGoFlow:
    """The program, which ends with the block. It has one producer; each other call has a client of its own."""

    def __init__(self, bootstrap: str) -> None:
        command = [str(FLOW), "-bootstrap", bootstrap]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate("", timeout=60)

    def produce(self, topic: str, values: Sequence[str]) -> list[int]:
        """The offsets at which they were acknowledged."""
        offsets: list[int] = self._ask(op="produce", topic=topic, values=list(values))["offsets"]
        return offsets

    def consume(self, topic: str, count: int, *, group: str = "") -> list[str]:
        """So many committed records from the beginning; as a member of a group, which commits, from where that is."""
        values: list[str] = self._ask(op="consume", topic=topic, count=count, group=group)["values"]
        return values

    def move(self, topic: str, target: str, count: int, *, group: str) -> None:
        """Move so many records to another topic, in transactions that commit the group's offsets."""
        assert self._ask(op="move", topic=topic, target=target, count=count, group=group)["moved"] == count

    @property
    def connections(self) -> int:
        """How many were opened so far."""
        count: int = self._ask(op="ledger")["connections"]
        return count

    @property
    def sent(self) -> dict[str, dict[int, int]]:
        """How many requests of each API and version were sent so far."""
        sent: dict[str, dict[int, int]] = {}
        for what, count in self._ask(op="ledger")["sent"].items():
            api, _, version = what.partition(" v")
            sent.setdefault(api, {})[int(version)] = count
        return sent

    @property
    def warnings(self) -> list[str]:
        warnings: list[str] = self._ask(op="ledger")["warnings"]
        return warnings

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the program by franz-go ended with exit code {self._process.wait()} at {request}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer

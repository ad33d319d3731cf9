"""A consumer group seen from outside: its members' processes, and waiting for what they report."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from compat_tests.clients import franz_go, kafkajs
from compat_tests.java import java_program

TIMEOUT_S = 120.0
JAVA_MEMBER = Path(__file__).resolve().parents[1] / "java" / "Member.java"

Row: TypeAlias = tuple[str, int, int, str]  # topic, partition, offset, value


def _program(client: str) -> list[str]:
    if client == "java":
        return java_program(JAVA_MEMBER)
    if client == "kafkajs":
        return kafkajs.member()
    if client == "franz-go":
        return franz_go.member()
    return [sys.executable, "-m", "compat_tests.groups.member", client]


class Member:
    """One member's process, and what it has reported so far. `changed` is shared by the members of a group."""

    def __init__(self, command: Sequence[str], changed: threading.Condition) -> None:
        self.assigned: list[tuple[str, int]] = []
        self.assignments = 0  # how often the assignment changed
        self.rows: list[Row] = []
        self.refusals: list[str] = []
        self.is_closed = False
        self._changed = changed
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            with self._changed:
                self._apply(event)
                self._changed.notify_all()

    def _apply(self, event: dict[str, Any]) -> None:
        if event["event"] == "assigned":
            self.assigned = [(topic, partition) for topic, partition in event["partitions"]]
            self.assignments += 1
        elif event["event"] == "rows":
            self.rows += [(topic, partition, offset, value) for topic, partition, offset, value in event["rows"]]
        elif event["event"] == "refused":
            self.refusals.append(event["text"])
        else:
            self.is_closed = True

    def leave(self) -> None:
        """Ends its input: it leaves the group and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(TIMEOUT_S)
        self._finish()
        assert code == 0, f"the member ended with exit code {code}"

    def crash(self) -> None:
        """kill -9: it leaves nothing behind, not even a goodbye."""
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        self._finish()

    def _finish(self) -> None:
        self._reader.join(TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        with self._changed:
            self.assigned = []

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


class Group:
    """The members of one group that a scenario started; `close` kills what is left of them."""

    def __init__(self, bootstrap: str, group_id: str, client: str) -> None:
        self.group_id = group_id
        self.members: list[Member] = []
        self._bootstrap = bootstrap
        self._client = client
        self._changed = threading.Condition()

    def join(self, topic: str, *options: str) -> Member:
        """Starts a member; `options` are those of compat_tests.groups.member."""
        command = _program(self._client)
        command += ["--bootstrap", self._bootstrap, "--group", self.group_id, "--topic", topic, *options]
        member = Member(command, self._changed)
        self.members.append(member)
        return member

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for the members' reports until `holds` does; fails in words after a minute."""
        with self._changed:
            if not self._changed.wait_for(holds, TIMEOUT_S):
                reported = [(m.is_running, m.assigned, len(m.rows), m.refusals[-3:]) for m in self.members]
                raise AssertionError(f"not within {TIMEOUT_S:.0f} s: {what}; members: {reported}")

    def await_balance(self, members: Sequence[Member], topics: Sequence[tuple[str, int]]) -> None:
        """Until each partition of the topics (name, partitions) has one owner, and each member has some."""
        wanted = sorted((topic, partition) for topic, partitions in topics for partition in range(partitions))

        def balanced() -> bool:
            owned = sorted(partition for member in members for partition in member.assigned)
            return owned == wanted and all(member.assigned for member in members)

        self.wait_until(balanced, f"{len(members)} members share {topics}")

    def await_values(self, values: Sequence[str]) -> None:
        """Until every one of the values was read by some member."""
        wanted = set(values)
        self.wait_until(lambda: wanted <= self.values(), "every value is read")

    def values(self) -> set[str]:
        return {value for member in self.members for _, _, _, value in member.rows}

    def close(self) -> None:
        for member in self.members:
            if member.is_running:
                member.crash()

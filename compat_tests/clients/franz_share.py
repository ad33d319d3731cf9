"""franz-go's share consumer, by way of compat_tests/go/share/main.go."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from compat_tests.clients.franz_go import PROGRAM
from compat_tests.clients.java_share import POLL_MS, Delivered

SHARE = PROGRAM.with_name("share")


class FranzGoShareConsumer:
    """A member of a share group; as `JavaShareConsumer`. What it has not acknowledged it accepts with its next poll."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str]) -> None:
        command = [str(SHARE), "-bootstrap", bootstrap, "-group", group, "-topics", ",".join(topics)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def poll(self, timeout_ms: int = POLL_MS) -> list[Delivered]:
        return [
            Delivered(it["topic"], it["partition"], it["offset"], b64decode(it["value"]), it["delivery_count"])
            for it in self._ask(op="poll", timeout_ms=timeout_ms)["records"]
        ]

    def poll_until_some(self, timeout_seconds: float = 30) -> list[Delivered]:
        deadline = time.monotonic() + timeout_seconds
        while not (records := self.poll()):
            assert time.monotonic() < deadline, "nothing was delivered in time"
        return records

    def acknowledge(self, records: Sequence[Delivered], kind: str = "ACCEPT") -> dict[str, int]:
        """Acknowledge and commit; the error code for each partition."""
        named = [{"topic": it.topic, "partition": it.partition, "offset": it.offset} for it in records]
        outcomes: dict[str, int] = self._ask(op="acknowledge", records=named, type=kind)["outcomes"]
        return outcomes

    def close(self) -> None:
        """Leave the group: what is held and not acknowledged is released."""
        self._process.communicate("")

    def kill(self) -> None:
        """Be gone without a word."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the member by franz-go ended with exit code {self._process.wait()} at {request}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer

"""Kafka's command line tools, all in one JVM: see Tools.java."""

from __future__ import annotations

import json
import select
import subprocess
from pathlib import Path
from typing import NamedTuple

from compat_tests.java import java_program

TIMEOUT_SECONDS = 120
TOOLS = Path(__file__).resolve().parent / "Tools.java"


class Done(NamedTuple):
    """How a tool ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line that is not empty."""
        return [line.split() for line in self.out.splitlines() if line.strip()]


class JavaTools:
    """The JVM. A tool is named by its class below org.apache.kafka.tools, or by a whole name that begins with kafka."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(java_program(TOOLS), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, tool: str, *arguments: str) -> Done:
        """Run a tool to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        name = tool if tool.startswith("kafka.") else f"org.apache.kafka.tools.{tool}"
        request = {"main": name, "arguments": arguments}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], TIMEOUT_SECONDS)[0]:
            self._process.kill()
            raise TimeoutError(f"{tool} did not end: {arguments}")
        line = self._process.stdout.readline()
        assert line, f"the JVM ended with exit code {self._process.wait()} at {arguments}"
        answer = json.loads(line)
        return Done(answer["code"], answer["out"], answer["err"])

    def close(self) -> None:
        self._process.communicate("")

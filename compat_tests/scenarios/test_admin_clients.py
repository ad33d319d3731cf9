"""Administrative clients: each makes its calls against Apache Kafka and Ottla, and is told the same by both.

The programs, one for each client, print a line `{"name": call, "result": text}` for every call they make. Web consoles
cannot be run here: kafka-ui and AKHQ call Java's AdminClient, Redpanda Console calls franz-go's kadm, as these programs
do.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests import java
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients import franz_go, kafkajs
from compat_tests.scenarios.admin_programs import PROGRAMS

pytestmark = pytest.mark.java

HERE = Path(__file__).resolve().parents[1]
TIMEOUT_S = 300

Both = tuple[BrokerProcess, BrokerProcess]


NOT_COMPARED = (
    (r"(?i)(topicId|id)=[\w-]{22}", r"\1=…"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r'"?port"?: ?\d+', "port: …"),
    # Settings that Kafka does not have.
    (r"; ottla\.[\w.]+=[^;]*", ""),
)


def told(command: list[str], broker: BrokerProcess) -> dict[str, str]:
    """What a program says, call by call."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=HERE.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    answers: dict[str, str] = {}
    for number, line in enumerate(done.stdout.splitlines()):
        answer = json.loads(line)
        text = str(answer["result"]).replace(broker.bootstrap, "BROKER")
        for pattern, replacement in NOT_COMPARED:
            text = re.sub(pattern, replacement, text)
        answers[f"{number} {answer['name']}"] = text
    return answers


def compare(both: Both, command: Callable[[BrokerProcess], list[str]], calls: int) -> None:
    with ThreadPoolExecutor(len(both)) as threads:
        kafka, ottla = threads.map(lambda broker: told(command(broker), broker), both)
    assert len(kafka) >= calls
    different = {call: (expected, ottla[call]) for call, expected in kafka.items() if ottla[call] != expected}
    assert different == {}


def test_java(both: Both) -> None:
    compare(both, lambda broker: java.java_program(HERE / "java" / "Admin.java", broker.bootstrap), 70)


@pytest.mark.kafkajs
def test_kafkajs(both: Both) -> None:
    compare(both, lambda broker: ["node", str(kafkajs.FOLDER / "admin.js"), broker.bootstrap], 30)


@pytest.mark.franz_go
def test_franz_go(both: Both) -> None:
    program = franz_go.PROGRAM.with_name("admin")
    compare(both, lambda broker: [str(program), broker.bootstrap], 35)


@pytest.mark.parametrize("client", PROGRAMS)
def test_python(both: Both, client: str) -> None:
    program = [sys.executable, "-m", "compat_tests.scenarios.admin_programs", client]
    compare(both, lambda broker: [*program, broker.bootstrap], 10)

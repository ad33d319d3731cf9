"""Kafka's own console tools. Those that read standard input, or count what they read in all their life, are
JVMs of their own: a scenario does several things at once.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.java import JARS, QUICK, archive, java
from compat_tests.java.tools import JavaTools

pytestmark = pytest.mark.java

TOOLS = "org.apache.kafka.tools"

Tool = Callable[..., str]


@pytest.fixture
def tool(broker: BrokerProcess) -> Tool:
    """Runs a tool by its class below org.apache.kafka.tools; what it printed. It must end well."""

    def run(name: str, *arguments: str, text: str = "") -> str:
        command = java(*QUICK, f"{TOOLS}.{name}", "--bootstrap-server", broker.bootstrap, *arguments)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def name() -> str:
    return f"console-{uuid.uuid4()}"


@pytest.fixture
def quick_tool(broker: BrokerProcess, jvm: JavaTools) -> Tool:
    """As `tool`, in the JVM that all of them share."""

    def run(name: str, *arguments: str) -> str:
        done = jvm.run(name, "--bootstrap-server", broker.bootstrap, *arguments)
        assert done.code == 0, done.out + done.err
        return done.out

    return run


def test_kafka_topics_creates_describes_alters_and_deletes(quick_tool: Tool, name: str) -> None:
    kafka_topics = partial(quick_tool, "TopicCommand")
    created = kafka_topics("--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=600000")
    assert created == f"Created topic {name}.\n"
    assert name in kafka_topics("--list").splitlines()
    kafka_topics("--alter", "--topic", name, "--partitions", "5")

    summary, *partitions = kafka_topics("--describe", "--topic", name).splitlines()
    assert "PartitionCount: 5\tReplicationFactor: 1" in summary
    assert "retention.ms=600000" in summary
    assert len(partitions) == 5
    assert all(re.search(r"Leader: (\d)\tReplicas: \1\tIsr: \1", line) for line in partitions)

    kafka_topics("--delete", "--topic", name)
    assert name not in kafka_topics("--list").splitlines()


def test_console_producer_and_consumer(tool: Tool, quick_tool: Tool, name: str) -> None:
    sent = "a:1|key-1|first\nb:2|key-2|zweiter\nc:3|key-1|third with spaces\n"
    properties = ("parse.headers=true", "parse.key=true", "headers.delimiter=|", "key.separator=|")
    options = [word for line in properties for word in ("--reader-property", line)]
    tool("ConsoleProducer", "--topic", name, "--compression-codec", "zstd", *options, text=sent)

    wanted = ("print.headers=true", "print.key=true", "print.offset=true", "print.partition=true", "key.separator=|")
    options = [word for line in wanted for word in ("--formatter-property", line)]
    back = tool(
        "consumer.ConsoleConsumer", "--topic", name, "--partition", "0", "--offset", "earliest",
        "--max-messages", "3", "--timeout-ms", "30000", *options,
    )  # fmt: skip

    assert back.splitlines() == [
        "Partition:0|Offset:0|a:1|key-1|first",
        "Partition:0|Offset:1|b:2|key-2|zweiter",
        "Partition:0|Offset:2|c:3|key-1|third with spaces",
    ]
    assert quick_tool("GetOffsetShell", "--topic", name, "--time", "latest") == f"{name}:0:3\n"
    assert quick_tool("GetOffsetShell", "--topic", name, "--time", "earliest") == f"{name}:0:0\n"


def test_console_consumer_in_a_group_leaves_its_offsets(tool: Tool, quick_tool: Tool, name: str) -> None:
    tool("ConsoleProducer", "--topic", name, text="".join(f"{n}\n" for n in range(10)))
    group = f"group-{name}"
    options = ("--topic", name, "--group", group, "--from-beginning", "--timeout-ms", "30000")
    first = tool("consumer.ConsoleConsumer", *options, "--max-messages", "4")
    second = tool("consumer.ConsoleConsumer", *options, "--max-messages", "6")

    assert [int(line) for line in (first + second).splitlines()] == list(range(10))
    described = quick_tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    *_, row = described.strip().splitlines()
    assert row.split()[:6] == [group, name, "0", "10", "10", "0"]


def test_a_jvm_takes_its_classes_out_of_the_archive() -> None:
    """Where `make jars` has made one. Who cannot use it starts without a word, and with twice the work."""
    if not archive(JARS).exists():
        pytest.skip("there is no archive of Kafka's classes: run `make jars`")
    done = subprocess.run(java("-Xshare:on", "-version"), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr

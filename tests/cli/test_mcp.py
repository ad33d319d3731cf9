"""`ottla mcp`, asked by the client of its own protocol over both of its ways."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import httpx2
import pytest

from ottla.cli import CommandError, main, mcp
from ottla.testing import Broker

pytestmark = pytest.mark.timeout(300)

READING = {
    "describe_cluster",
    "describe_group",
    "describe_topic",
    "explain_access",
    "get_config",
    "list_groups",
    "list_topics",
    "list_transactions",
    "read_records",
    "search_records",
}
WRITING = {"create_topic", "delete_records", "delete_topic", "produce", "seek_group", "set_config"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    shared.create_topic("orders", 2)
    shared.produce("orders", {"article": "tea"}, {"article": "bread"}, key="ann", partition=0)
    yield shared
    shared.reset()


def talk(broker: Broker, say: Callable[[Asked], Any], *options: str) -> None:
    """Let a client say something to a server in this process."""

    async def main() -> None:
        from mcp.client import Client  # it takes a second: not at collection

        async with Client(mcp.new_server(parsed("-b", broker.bootstrap, *options))) as client:
            await say(Asked(client))

    anyio.run(main)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    mcp.configure(parser)
    return parser.parse_args(words)


class Asked:
    """A client whose answers are what tools return."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def __call__(self, tool: str, **arguments: object) -> Any:
        text, is_error = await self._call(tool, arguments)
        assert not is_error, text
        try:
            return json.loads(text)
        except ValueError:
            return text

    async def refused(self, tool: str, **arguments: object) -> str:
        text, is_error = await self._call(tool, arguments)
        assert is_error, text
        return text

    async def _call(self, tool: str, arguments: dict[str, object]) -> tuple[str, bool]:
        result = await self.client.call_tool(tool, arguments)
        return "".join(getattr(part, "text", "") for part in result.content), bool(result.is_error)


def test_what_reads(broker: Broker) -> None:
    async def say(asked: Asked) -> None:
        tools = await asked.tools()
        assert set(tools) == READING
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        assert len((await asked("describe_cluster"))["brokers"]) == 1
        assert [topic["name"] for topic in (await asked("list_topics"))["found"]] == ["orders"]
        assert (await asked("list_topics", containing="x"))["found"] == []
        assert len((await asked("describe_topic", topic="orders"))["partitions"]) == 2
        read = await asked("read_records", topic="orders", begin="beginning", partition=0)
        assert [json.loads(record["payload"])["article"] for record in read["records"]] == ["tea", "bread"]
        found = await asked("search_records", topic="orders", pattern="bread")
        assert [record["offset"] for record in found["records"]] == [1]
        assert found["searched"] == 2
        assert (await asked("list_groups"))["found"] == []
        assert (await asked("list_transactions"))["found"] == []
        assert (await asked("get_config", kind="topic", name="orders"))["settings"] == []
        assert "there is no group" in await asked.refused("describe_group", group="nobody")
        assert "SECURITY_DISABLED" in await asked.refused(
            "explain_access", principal="ann", operation="read", resource="topic:orders"
        )

    talk(broker, say)


def test_what_writes_is_offered_only_if_it_may(broker: Broker) -> None:
    async def say(asked: Asked) -> None:
        tools = await asked.tools()
        assert set(tools) == READING | WRITING
        assert not any(tools[name].annotations.read_only_hint for name in WRITING)
        assert {name for name in WRITING if tools[name].annotations.destructive_hint} == WRITING - {
            "create_topic",
            "produce",
        }
        await asked("create_topic", topic="bills", partitions=3, settings={"retention.ms": "1000"})
        await asked("produce", topic="bills", value="two\nlines", key="--key")
        await asked("set_config", kind="topic", name="bills", settings={"retention.ms": "2000"})
        (found,) = (await asked("get_config", kind="topic", name="bills"))["settings"]
        assert found["value"] == "2000"
        assert broker.topics()["bills"] == 3
        (record,) = broker.records("bills")
        assert (record.key, record.value) == (b"--key", b"two\nlines")
        await asked("delete_records", topic="bills", before="end")
        assert broker.records("bills") == []
        await asked("delete_topic", topic="bills")
        assert list(broker.topics()) == ["orders"]

    talk(broker, say, "--allow-write")


def test_a_name_is_a_name(broker: Broker) -> None:
    async def say(asked: Asked) -> None:
        for name in ("--help", "--command-config=/etc/passwd", "a b", "'; rm -rf /"):
            said = await asked.refused("describe_topic", topic=name)
            assert f"topic {name}: " in said or "no topic" in said

    talk(broker, say)


def test_over_standard_input_and_output(broker: Broker) -> None:
    async def main() -> None:
        from mcp.client import Client
        from mcp.client.stdio import StdioServerParameters

        words = ["-m", "ottla.cli", "mcp", "-b", broker.bootstrap]
        parameters = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
        async with Client(parameters) as client:
            assert set(await Asked(client).tools()) == READING
            assert [topic["name"] for topic in (await Asked(client)("list_topics"))["found"]] == ["orders"]

    anyio.run(main)


def test_hostile_arguments_are_refused(broker: Broker) -> None:
    async def say(asked: Asked) -> None:
        assert "null character" in await asked.refused("describe_topic", topic="a\0b")
        assert "not the name of a setting" in await asked.refused("create_topic", topic="t", settings={"--set x": "1"})
        for arguments in (
            {"topic": "orders", "count": 100_000},
            {"topic": "orders", "count": 0},
            {"topic": "orders", "partition": -1},
            {"topic": ""},
            {"topic": "x" * 300},
            {"topic": ["orders"]},
            {},
        ):
            assert "validation" in await asked.refused("read_records", **arguments)
        assert "offset" in await asked.refused("read_records", topic="orders", begin="--help")
        assert "bytes at a time" in await asked.refused("produce", topic="orders", value="x" * 2_000_000)
        assert "Unknown tool" in await asked.refused("serve")
        assert len((await asked("read_records", topic="orders"))["records"]) == 2

    talk(broker, say, "--allow-write")


def test_answers_are_bounded(broker: Broker) -> None:
    broker.produce("orders", "x" * 100_000)
    broker.create_topic("large")
    broker.produce("large", *["y" * 10_000 for _ in range(100)])

    async def say(asked: Asked) -> None:
        read = await asked("read_records", topic="orders")
        (long,) = [record["payload"] for record in read["records"] if record["payload"].startswith("xx")]
        assert long.endswith("… (100000 characters)")
        assert len(long) < 3_000
        read = await asked("read_records", topic="large", begin="beginning", count=200)
        assert read["more_left_out"]
        assert 0 < len(read["records"]) < 100

    talk(broker, say)


def test_a_cluster_that_does_not_answer_ends_no_tool(broker: Broker) -> None:
    async def say(asked: Asked) -> None:
        broker.stop()
        assert "127.0.0.1" in await asked.refused("describe_cluster")
        broker.start()
        assert len((await asked("describe_cluster"))["brokers"]) == 1

    talk(broker, say, "--timeout", "5")


def test_a_command_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.cli.agents import calls  # it takes half a second: not at collection

    async def main() -> None:
        commands = calls.Commands([], 0.05)
        with pytest.raises(Exception, match=r"not done after 0\.05 s"):
            await commands.text("serve", port=0, memory=True)

    anyio.run(main)


@contextmanager
def over_http(broker: Broker, token: str | None) -> Iterator[tuple[str, str]]:
    """The URL and the token of a server over HTTP, as it prints them."""
    environment = {**os.environ, "OTTLA_MCP_TOKEN": token or ""}
    words = [sys.executable, "-m", "ottla.cli", "mcp", "-b", broker.bootstrap, "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.fullmatch(r"ottla mcp: serving at (http:\S+/mcp)(?: with the token (\S+))?\n", said)
            assert found is not None, said
            assert (token is None) == (found[2] is not None)
            yield found[1], token or found[2]
        finally:
            process.terminate()


@pytest.mark.parametrize("token", ["a token of ours", None])
def test_over_http(broker: Broker, token: str | None) -> None:
    async def main() -> None:
        from mcp.client import Client
        from mcp.client.streamable_http import streamable_http_client

        with over_http(broker, token) as (url, known):
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {known}"})
            async with http, Client(streamable_http_client(url, http_client=http)) as client:
                assert set(await Asked(client).tools()) == READING
                assert [topic["name"] for topic in (await Asked(client)("list_topics"))["found"]] == ["orders"]
            for shown in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {known}"}):
                async with httpx2.AsyncClient() as stranger:
                    assert (await stranger.post(url, json={}, headers=shown)).status_code == 401

    anyio.run(main)


def test_it_listens_to_the_machine_itself_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--http", "0.0.0.0:0"]) == 1
    assert "is not this machine itself" in capsys.readouterr().err


def test_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(CommandError, match=r"pip install 'ottla\[mcp\]'"):
        mcp.new_server(parsed())

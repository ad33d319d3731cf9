"""An API is declared in one place: the module that handles it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ottla.server.apis as room
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.controllers.alter_partition import AlterPartitionRequest
from ottla.server.apis.not_served import NOT_SERVED
from ottla.server.apis.table import ApiTable, declaration, needing_http, served

_PRETEND = '''
"""AlterPartition (56), which no broker serves."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.controllers.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import ANYBODY

API = Api(ApiKey.ALTER_PARTITION, ANYBODY)


def handle(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=request.broker_id)
'''


@pytest.mark.parametrize("key", served(), ids=lambda key: key.name)
def test_each_module_declares_the_api_that_it_is_named_like(key: ApiKey) -> None:
    assert declaration(key).key is key


def _waits(node: ast.AST) -> bool:
    return isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) or (
        isinstance(node, ast.comprehension) and bool(node.is_async)
    )


def _idle_handlers(source: str) -> list[str]:
    """The coroutine functions of a module called `handle` that wait for nothing."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AsyncFunctionDef)
        and node.name == "handle"
        and not any(_waits(inner) for inner in ast.walk(node))
    ]


def test_a_handler_that_waits_for_nothing_is_no_coroutine() -> None:
    """Its request would wake the connection's task for nothing."""
    assert _idle_handlers("async def handle(request, context):\n    return 1") == ["handle"]
    assert _idle_handlers("async def handle(request, context):\n    return await context.do()") == []
    modules = list(Path(room.__file__).parent.rglob("*.py"))
    assert {path.name for path in modules} > {f"{key.name.lower()}.py" for key in served()}
    assert {path.name: idle for path in modules if (idle := _idle_handlers(path.read_text()))} == {}


def test_every_api_of_kafka_is_served_or_has_a_reason_why_not() -> None:
    assert set(served()).isdisjoint(NOT_SERVED)
    assert set(served()) | set(NOT_SERVED) == set(ApiKey)


def test_without_a_place_for_what_clients_push_only_that_is_missing() -> None:
    assert needing_http() == {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert {api.key for api in ApiTable.default(takes_telemetry=False)} == set(served()) - needing_http()


async def test_a_new_api_is_one_new_file(
    serve_node: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pretend"
    folder.mkdir()
    (folder / "alter_partition.py").write_text(_PRETEND, encoding="utf-8")
    monkeypatch.setattr(room, "__path__", [*room.__path__, str(tmp_path)])
    async with serve_node({"ottla.metadata.store": "memory"}) as node:
        client = await node.connect()
        answer = await client.call(AlterPartitionRequest(broker_id=7), ApiKey.ALTER_PARTITION.valid_versions.highest)
    assert answer.throttle_time_ms == 7

"""The tools: each is a command of `ottla`, with what an agent needs of its options and a bounded answer."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from ottla.cli.agents.calls import Commands

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_DESTROYS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
_MAX_LISTED: Final = 500
_MAX_VALUE_CHARACTERS: Final = 2_000

Name = Annotated[str, Field(min_length=1, max_length=249)]
Place = Annotated[
    str,
    Field(
        max_length=64,
        description="beginning, end, an offset, -N (N before the end), -1h (so long ago: s, m, d, w), or a time "
        "such as 2026-01-31T12:00:00Z",
    ),
]
Kind = Literal["topic", "broker", "group", "client-metrics"]


def add_reading(server: MCPServer, commands: Commands) -> None:
    """The tools that change nothing."""
    _add_reading_of_topics(server, commands)
    _add_reading_of_records(server, commands)
    _add_reading_of_groups_and_transactions(server, commands)
    _add_reading_of_settings_and_access(server, commands)


def _add_reading_of_topics(server: MCPServer, commands: Commands) -> None:
    @server.tool(annotations=_READS)
    async def describe_cluster() -> Any:
        """The cluster's id, its controller, and its brokers with their addresses."""
        return await commands.value("cluster", "describe")

    @server.tool(annotations=_READS)
    async def list_topics(containing: str = "", internal: bool = False) -> dict[str, Any]:
        """The topics, of names that contain a text: partitions, replicas, and how many records and bytes."""
        return _listed(*await commands.values("topic", "list", internal=internal), containing)

    @server.tool(annotations=_READS)
    async def describe_topic(topic: Name) -> Any:
        """A topic's partitions with leaders, replicas and offsets, its settings, and the groups that read it."""
        return await commands.value("topic", "describe", names=[topic])


def _add_reading_of_records(server: MCPServer, commands: Commands) -> None:
    @server.tool(annotations=_READS)
    async def read_records(
        topic: Name,
        begin: Place = "-20",
        until: Place = "",
        partition: Annotated[int | None, Field(ge=0)] = None,
        count: Annotated[int, Field(ge=1, le=200)] = 20,
        read_committed: bool = True,
    ) -> dict[str, Any]:
        """Records of a topic, in order for each partition. Long values are cut, and said to be."""
        records, is_cut = await commands.values(
            "consume",
            names=[topic],
            offset=begin,
            until=until or None,
            partition=partition,
            count=count,
            read_committed=read_committed,
        )
        return {"records": [_shortened(record) for record in records], "more_left_out": is_cut}

    @server.tool(annotations=_READS)
    async def search_records(
        topic: Name,
        pattern: Annotated[str, Field(min_length=1, max_length=500)],
        begin: Place = "-1000",
        until: Place = "",
        count: Annotated[int, Field(ge=1, le=100)] = 20,
        among: Annotated[int, Field(ge=1, le=5_000)] = 1_000,
    ) -> dict[str, Any]:
        """Records whose key or value contains a text, of the first `among` from `begin` on."""
        records, is_cut = await commands.values(
            "consume", names=[topic], offset=begin, until=until or None, count=among
        )
        found = [record for record in records if any(pattern in str(record.get(name)) for name in ("key", "payload"))]
        return {
            "records": [_shortened(record) for record in found[:count]],
            "searched": len(records),
            "more_left_out": is_cut or len(found) > count,
        }


def _add_reading_of_groups_and_transactions(server: MCPServer, commands: Commands) -> None:
    @server.tool(annotations=_READS)
    async def list_groups(containing: str = "") -> dict[str, Any]:
        """The groups of all protocols, of names that contain a text, with state and members."""
        return _listed(*await commands.values("group", "list"), containing)

    @server.tool(annotations=_READS)
    async def describe_group(group: Name) -> Any:
        """A group's offsets, how far each partition lags, its members and what they are assigned."""
        return await commands.value("group", "describe", names=[group])

    @server.tool(annotations=_READS)
    async def list_transactions() -> Any:
        """The transactional ids, with state and producer."""
        return _listed(*await commands.values("transaction", "list"))


def _add_reading_of_settings_and_access(server: MCPServer, commands: Commands) -> None:
    @server.tool(annotations=_READS)
    async def get_config(kind: Kind, name: Name, all_settings: bool = False) -> Any:
        """The settings of a topic, a group or a broker (its id, or `all`): those that are set, or all there are."""
        settings, is_cut = await commands.values("config", "get", names=[kind, name], all=all_settings)
        return {"settings": settings, "more_left_out": is_cut}

    @server.tool(annotations=_READS)
    async def explain_access(
        principal: Name, operation: Name, resource: Name, host: Annotated[str, Field(max_length=64)] = ""
    ) -> str:
        """Whether a user may do something (`alice`, `read`, `topic:orders`), and which rule decides."""
        return await commands.text("acl", "explain", names=[principal, operation, resource], host=host or None)


def add_writing(server: MCPServer, commands: Commands) -> None:
    """The tools that change something: only with `--allow-write`."""

    @server.tool(annotations=_ADDS)
    async def create_topic(
        topic: Name,
        partitions: Annotated[int | None, Field(ge=1, le=10_000)] = None,
        settings: dict[str, str] | None = None,
    ) -> str:
        """Create a topic; settings by Kafka's names."""
        given = [f"{_setting(name)}={value}" for name, value in (settings or {}).items()]
        await commands.text("topic", "create", names=[topic], partitions=partitions, config=given)
        return "created"

    @server.tool(annotations=_ADDS)
    async def produce(topic: Name, value: str, key: str | None = None) -> str:
        """Append a record, whose key and value are text. Returns when all replicas in sync have it."""
        # A single file is one record, whatever is in it.
        await commands.text(
            "produce", names=[topic, "/dev/stdin"], stdin=value.encode(), whole_files=True, key=key, acks="all"
        )
        return "acknowledged"

    @server.tool(annotations=_DESTROYS)
    async def set_config(kind: Kind, name: Name, settings: dict[str, str]) -> str:
        """Give settings of a topic, a group or a broker a value."""
        if not settings:
            raise ToolError("there is no setting to set")
        given = [f"{_setting(setting)}={value}" for setting, value in settings.items()]
        await commands.text("config", "set", names=[kind, name, *given])
        return "set"

    @server.tool(annotations=_DESTROYS)
    async def seek_group(group: Name, to: Place, topics: list[Name] | None = None) -> Any:
        """Move the offsets of a group that has no members, of all its topics or of some."""
        return await commands.value("group", "seek", names=[group, *(topics or [])], to=to)

    @server.tool(annotations=_DESTROYS)
    async def delete_records(topic: Name, before: Place) -> Any:
        """Delete the oldest records of a topic, up to a place."""
        return await commands.value("topic", "delete-records", names=[topic], before=before)

    @server.tool(annotations=_DESTROYS)
    async def delete_topic(topic: Name) -> str:
        """Delete a topic and all its records."""
        await commands.text("topic", "delete", names=[topic])
        return "deleted"


def _listed(found: list[Any], is_cut: bool, containing: str = "") -> dict[str, Any]:
    """The entries whose name, which each begins with, contains a text."""
    chosen = [each for each in found if containing in str(next(iter(each.values()), ""))]
    return {"found": chosen[:_MAX_LISTED], "left_out": max(0, len(chosen) - _MAX_LISTED), "more_left_out": is_cut}


def _shortened(record: dict[str, Any]) -> dict[str, Any]:
    return {name: _short(value) for name, value in record.items()}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if not isinstance(value, str) or len(value) <= _MAX_VALUE_CHARACTERS:
        return value
    return f"{value[:_MAX_VALUE_CHARACTERS]}… ({len(value)} characters)"


def _setting(name: str) -> str:
    if not re.fullmatch(r"[\w.\-]+", name):
        raise ToolError(f"{name!r} is not the name of a setting")
    return name

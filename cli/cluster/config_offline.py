"""`ottla config … --offline`: settings as they are stored, where no broker can be asked."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ottla.cli import CommandError, options
from ottla.metadata import keys
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.store import Compare, Delete, Put
from ottla.settings.config import GROUP_SETTINGS, TOPIC_SETTINGS, setting_of_broker

if TYPE_CHECKING:
    from ottla.metastore.store import KeyValue, MetadataStore, Operation

_ATTEMPTS: Final = 10


def run(arguments: argparse.Namespace, type_: int, name: str) -> int:
    """Show or remove what is stored of a resource. Nothing is checked that a broker would check."""
    resource = ConfigResource(ResourceType(type_), name)
    if resource.type is ResourceType.BROKER_LOGGER:
        raise CommandError("levels of loggers are not stored")
    try:
        trio.run(_run, arguments, resource)
    except StoreUnavailableError as error:
        raise CommandError(str(error)) from None
    return 0


async def _run(arguments: argparse.Namespace, resource: ConfigResource) -> None:
    from ottla.cli.folders.fsck_metadata import open_metadata

    where, store = await open_metadata(Path(arguments.data_dir), arguments.metadata)
    try:
        if arguments.action == "get":
            await _show(store, resource, arguments)
        else:
            await _unset(store, resource, [name for name, _ in arguments.changes], where)
    finally:
        await store.close()


async def _show(store: MetadataStore, resource: ConfigResource, arguments: argparse.Namespace) -> None:
    stored = _configs(resource, await store.get(_key(resource)))
    rows = [
        {"name": name, "value": None if _is_secret(resource, name) else value, "source": "stored"}
        for name, value in sorted(stored.items())
        if not arguments.names or name in arguments.names
    ]
    if arguments.json:
        import json

        print(json.dumps(rows, indent=2))
        return
    shown = (
        (name, "(hidden)" if value is None else options.setting_value(name, value))
        for name, value in ((str(row["name"]), row["value"]) for row in rows)
    )
    options.print_table(("SETTING", "VALUE"), shown)


async def _unset(store: MetadataStore, resource: ConfigResource, names: list[str], where: str) -> None:
    key = _key(resource)
    for _ in range(_ATTEMPTS):
        entry = await store.get(key)
        stored = _configs(resource, entry)
        if missing := [name for name in names if name not in stored]:
            raise CommandError(f"{', '.join(missing)} is not stored in {where}")
        assert entry is not None
        left = {name: value for name, value in stored.items() if name not in names}
        operation: Operation
        if resource.type is ResourceType.TOPIC:
            topic_id, replicas, _ = keys.decode_topic(entry.value)
            operation = Put(key, keys.encode_topic(topic_id, replicas, left))
        else:
            operation = Put(key, keys.encode(left)) if left else Delete(key)
        if await store.commit((Compare(key, entry.mod_revision),), (operation,)) is not None:
            return
    raise CommandError(f"{where} is being changed by somebody else: try again")


def _key(resource: ConfigResource) -> str:
    return keys.topic(resource.name) if resource.type is ResourceType.TOPIC else keys.configs(resource)


def _configs(resource: ConfigResource, entry: KeyValue | None) -> dict[str, str]:
    if entry is None:
        if resource.type is ResourceType.TOPIC:
            raise CommandError(f"there is no topic {resource.name}")
        return {}
    found: dict[str, str] = (
        keys.decode_topic(entry.value)[2] if resource.type is ResourceType.TOPIC else keys.decode(entry.value)
    )
    return found


def _is_secret(resource: ConfigResource, name: str) -> bool:
    """Also what nobody knows: it may be one."""
    settings = {ResourceType.TOPIC: TOPIC_SETTINGS, ResourceType.GROUP: GROUP_SETTINGS}.get(resource.type)
    if resource.type is ResourceType.CLIENT_METRICS:
        return False
    setting = setting_of_broker(name) if settings is None else settings.get(name)
    return setting is None or setting.sensitive

"""The object store that a command looks at."""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

import trio

from ottla.cli import CommandError
from ottla.storage.format.topic_file import FOLDER_NAME_CHARACTERS
from ottla.tiers.errors import TierError

if TYPE_CHECKING:
    from ottla.settings.config import BrokerConfig
    from ottla.tiers.names import TopicNames
    from ottla.tiers.object_store import ObjectStore

_ATTEMPTS: Final = 3

P = ParamSpec("P")
T = TypeVar("T")


class Place(NamedTuple):
    """An object store, and its address."""

    url: str
    store: ObjectStore


def add_place(parser: argparse.ArgumentParser, *, otherwise: str) -> None:
    """The options that say where the object store is; `otherwise` is where it is without them."""
    parser.add_argument(
        "--remote-url",
        metavar="URL",
        help=f"where the object store is, as in ottla.remote.url; credentials are found in the environment "
        f"(default: {otherwise})",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as for `ottla serve`, of which ottla.remote.url is one"
    )


def settings(config: Path | None, remote_url: str | None) -> BrokerConfig:
    """The settings from a file, an object store's address, and the environment."""
    from ottla.settings.config import ConfigError
    from ottla.settings.sources import load

    is_toml = config is not None and config.suffix == ".toml"
    try:
        return load(
            toml=config if is_toml else None,
            properties=None if is_toml else config,
            environment=os.environ,
            flags={} if remote_url is None else {"ottla.remote.url": remote_url},
        )
    except ConfigError as error:
        raise CommandError(str(error)) from None


def open_place(config: BrokerConfig, told: str | None = None) -> Place:
    """The object store of these settings, or at the address that a broker has told. Nobody is asked anything yet."""
    from ottla.tiers.address import open_object_store
    from ottla.tiers.patient_store import PatientObjectStore

    url = config.ottla_remote_url or told
    if not url:
        raise CommandError("ottla.remote.url is not set: name the object store with --remote-url or --config")
    timeout_seconds = config.ottla_remote_request_timeout_ms / 1000
    try:
        store = open_object_store(url, timeout_seconds=timeout_seconds)
    except (ValueError, TierError) as error:
        raise CommandError(f"{url}: {error}") from None
    return Place(url, PatientObjectStore(store, timeout_seconds=timeout_seconds, attempts=_ATTEMPTS))


def asking(place: Place, work: Callable[P, Awaitable[T]], *arguments: P.args, **options: P.kwargs) -> T:
    """What `work` returns. CommandError if the object store does not answer."""

    async def run() -> T:
        return await work(*arguments, **options)

    try:
        return trio.run(run)
    except* TierError as group:
        raise CommandError(f"{place.url}: {group.exceptions[0]}") from None
    except* KeyboardInterrupt:
        raise KeyboardInterrupt from None


async def find_wanted(place: Place, cluster_id: str | None, topics: Collection[str]) -> list[TopicNames]:
    """The topics of one cluster, or of all that have objects there; those of these names, or all. Raises TierError."""
    from ottla.tiers.listing import find_clusters, find_topics

    clusters = await find_clusters(place.store) if cluster_id is None else [cluster_id]
    return [
        names
        for cluster in clusters
        for topic in dict.fromkeys(topics) or [None]
        async for names in find_topics(place.store, cluster, topic)
    ]


def missing_topic(topics: Collection[str], found: Iterable[TopicNames]) -> str | None:
    """The first of these topics that was not found; None if all were."""
    there = {names.topic[:FOLDER_NAME_CHARACTERS] for names in found}
    return next((name for name in topics if name[:FOLDER_NAME_CHARACTERS] not in there), None)

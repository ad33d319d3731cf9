"""A mirror compared with its source, by asking both."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.cli import CommandError
from ottla.cli.connection import CLIENT_ID, security
from ottla.client.addresses import parse_addresses
from ottla.client.client import Client
from ottla.client.errors import AddressError, BrokerError, ConnectionLostError, UnreachableError
from ottla.client.offsets import EARLIEST, LATEST, TopicPartition, offsets_at
from ottla.client.security import NO_SECURITY
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.topics.metadata import MetadataResponseTopic
from ottla.server.mirror.names import NamePattern
from ottla.settings.mirrored import MIRROR_SETTING, NOT_MIRRORED, Mirrored, Mirroring, parse_mirrored

SERVERS: Final = "ottla.mirror.bootstrap.servers"
TOPICS: Final = "ottla.mirror.topics"
GROUPS: Final = "ottla.mirror.groups"
CLIENT_PROPERTIES: Final = "ottla.mirror.client.properties"

_TOPIC: Final = 2
_BROKER: Final = 4
_SET: Final = 0
_DELETE: Final = 1
_TOPICS_A_REQUEST: Final = 100


def add_source(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """`--from` and `--from-config`."""
    default = "" if required else " (default: the cluster that is mirrored)"
    parser.add_argument(
        "--from", dest="source", required=required, metavar="HOST:PORT[,…]", help=f"brokers of the source{default}"
    )
    parser.add_argument(
        "--from-config",
        dest="source_config",
        type=Path,
        metavar="FILE",
        help="how to connect to the source: a client's properties, for TLS and SASL",
    )


@contextmanager
def connected_source(here: Client, arguments: argparse.Namespace) -> Iterator[Client]:
    """A client of the source that `--from` names, or of the one that is mirrored; its errors become CommandError."""
    servers = arguments.source or broker_settings(here).get(SERVERS)
    if not servers:
        raise CommandError("this cluster mirrors nothing now: name the source with --from HOST:PORT")
    # Not what the environment says about this cluster.
    how = NO_SECURITY if arguments.source_config is None else security(arguments.source_config)
    try:
        with Client(parse_addresses(servers), arguments.timeout, CLIENT_ID, security=how) as there:
            there.metadata([])
            yield there
    except AddressError as error:
        raise CommandError(f"--from: {error}") from None
    except UnreachableError as error:
        raise CommandError(f"the source: {error}") from None
    except ConnectionLostError as error:
        raise CommandError(f"{error}: if it asks who you are, say how with --from-config") from None


# What is set. --------------------------------------------------------------------------------------------------------


def broker_settings(client: Client) -> dict[str, str]:
    """The mirror's settings, as all brokers have them."""
    asked = DescribeConfigsResource(resource_type=_BROKER, resource_name="", configuration_keys=None)
    (result,) = client.call(DescribeConfigsRequest(resources=[asked])).results
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message, what="the settings of the brokers")
    return {it.name: it.value or "" for it in result.configs if it.name.startswith("ottla.mirror.")}


def alter_brokers(client: Client, settings: Mapping[str, str | None]) -> None:
    """Set these for all brokers; None means the default."""
    _alter(client, _BROKER, {"": settings})


def alter_topics(client: Client, settings: Mapping[str, str | None]) -> None:
    """Set what each topic is to another cluster from now on; None for nothing."""
    names = list(settings)
    for first in range(0, len(names), _TOPICS_A_REQUEST):
        some = names[first : first + _TOPICS_A_REQUEST]
        _alter(client, _TOPIC, {name: {MIRROR_SETTING: settings[name]} for name in some})


def _alter(client: Client, type_: int, asked: Mapping[str, Mapping[str, str | None]]) -> None:
    resources = [
        AlterConfigsResource(
            resource_type=type_,
            resource_name=name,
            configs=[
                AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
                for key, value in settings.items()
            ],
        )
        for name, settings in asked.items()
    ]
    for result in client.call(IncrementalAlterConfigsRequest(resources=resources)).responses:
        if result.error_code:
            raise BrokerError(result.error_code, result.error_message, what=result.resource_name or "the brokers")


def mirrored_topics(client: Client, names: Iterable[str], broker: int | None = None) -> dict[str, Mirrored]:
    """The mirroring of each topic, according to any broker or the given one. Ordinary topics are left out."""
    found: dict[str, Mirrored] = {}
    wanted = list(names)
    for first in range(0, len(wanted), _TOPICS_A_REQUEST):
        asked = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=[MIRROR_SETTING])
            for name in wanted[first : first + _TOPICS_A_REQUEST]
        ]
        connection = client.any_broker() if broker is None else client.broker(broker)
        for result in connection.call(DescribeConfigsRequest(resources=asked)).results:
            text = next((it.value for it in result.configs if it.name == MIRROR_SETTING), None)
            if text:
                found[result.resource_name] = parse_mirrored(text)
    return found


# How far it is. ------------------------------------------------------------------------------------------------------


class TopicState(NamedTuple):
    """A topic on both sides. `lag` is None if it is not known."""

    topic: str
    partitions: int
    lag: int | None
    state: str


class Comparison(NamedTuple):
    """How much the mirrored topics hold at the source, and how much of that is here."""

    topics: Sequence[str]
    records: int
    lags: Mapping[TopicPartition, int]

    @property
    def lag(self) -> int:
        return sum(self.lags.values())

    @property
    def copied(self) -> int:
        return self.records - self.lag

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to copy."""
        return not any(self.lags.values())


def compare(here: Client, there: Client, patterns: str) -> Comparison:
    """Compare the topics that the patterns name, mirrored already or not. It counts offsets, not records."""
    names = NamePattern([it.strip() for it in patterns.split(",") if it.strip()])
    meant = [it for it in visible_topics(there) if names.matches(it.name or "")]
    lags, records = lags_of(here, there, meant)
    return Comparison([it.name or "" for it in meant], records, lags)


def visible_topics(client: Client) -> list[MetadataResponseTopic]:
    """The topics of a cluster, without internal ones."""
    return [it for it in client.metadata(None).topics if not it.is_internal and not it.error_code]


def lags_of(
    here: Client, there: Client, topics: Sequence[MetadataResponseTopic]
) -> tuple[dict[TopicPartition, int], int]:
    """How many offsets each partition lacks here, and how many there are at the source."""
    partitions = [TopicPartition(it.name or "", part.partition_index) for it in topics for part in it.partitions]
    ends, starts = ends_of(there, partitions), offsets_at(there, partitions, EARLIEST)
    known = {it.name for it in here.metadata(None).topics}
    copied = ends_of(here, [it for it in partitions if it.topic in known])
    begins = {it: starts.get(it, 0) for it in partitions}
    lags = {it: max(0, end - max(copied.get(it, 0), begins[it])) for it, end in ends.items()}
    return lags, sum(max(0, end - begins[it]) for it, end in ends.items())


def ends_of(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets of partitions for readers."""
    return offsets_at(client, partitions, LATEST)


def states(here: Client, there: Client | None, patterns: str = "*") -> list[TopicState]:
    """Every topic that is mirrored, or should be, with how much it lacks."""
    local = {it.name or "": it for it in visible_topics(here)}
    mirrored = mirrored_topics(here, local)
    if there is None:
        return [
            TopicState(name, len(local[name].partitions), None, it.mirroring.value) for name, it in mirrored.items()
        ]
    names = NamePattern([it.strip() for it in patterns.split(",") if it.strip()])
    source = {it.name or "": it for it in visible_topics(there)}
    ids = {it.topic_id for it in source.values()}
    followed = [
        source[name] for name, it in mirrored.items() if name in source and source[name].topic_id == it.source_id
    ]
    lags, _ = lags_of(here, there, followed)
    found = []
    for name in sorted({name for name in source if names.matches(name)} | mirrored.keys()):
        mirror = mirrored.get(name, NOT_MIRRORED)
        state = _state(mirror, name in local, source.get(name), ids)
        lag = sum(lag for it, lag in lags.items() if it.topic == name)
        is_followed = mirror.mirroring is not Mirroring.NO and mirror.source_id in ids
        counted = local.get(name) or source[name]
        found.append(TopicState(name, len(counted.partitions), lag if is_followed else None, state))
    return found


def _state(mirror: Mirrored, is_here: bool, source: Any, ids: set[UUID]) -> str:
    if mirror.mirroring is Mirroring.NO:
        return "exists here already, and is not a mirror" if is_here else "not started yet"
    if mirror.source_id not in ids:
        return "deleted at the source" if source is None else "deleted and created again at the source"
    return str(mirror.mirroring.value)

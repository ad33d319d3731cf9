"""The settings of a mirror of another cluster."""

from __future__ import annotations

from ottla.client.addresses import parse_addresses
from ottla.client.errors import AddressError
from ottla.settings.checks import Check, between
from ottla.settings.declaration import CLUSTER_WIDE, integer, password, strings


def _check_servers(servers: tuple[str, ...]) -> None:
    try:
        for server in servers:
            parse_addresses(server)
    except AddressError as error:
        raise ValueError(str(error)) from None


class MirrorSettings:
    """What this cluster mirrors of another one; `ottla mirror` sets them."""

    ottla_mirror_bootstrap_servers: tuple[str, ...] = strings(
        (),
        "Brokers of the cluster that is mirrored, as host:port; if empty, nothing is mirrored.",
        check=Check(_check_servers, "addresses, as host:port"),
        update=CLUSTER_WIDE,
    )
    ottla_mirror_topics: tuple[str, ...] = strings(
        ("*",),
        "Names of the topics that are mirrored, with * and ? as in file names; a leading ! excludes.",
        update=CLUSTER_WIDE,
    )
    ottla_mirror_groups: tuple[str, ...] = strings(
        ("*",), "Names of the groups whose committed offsets are mirrored, in the same way.", update=CLUSTER_WIDE
    )
    ottla_mirror_client_properties: str | None = password(
        "How to connect there: the text of a client's properties file, for TLS and SASL.", update=CLUSTER_WIDE
    )
    ottla_mirror_interval_ms: int = integer(
        5000,
        "How often the source is asked for new topics, partitions, settings and committed offsets.",
        check=between(100),
        update=CLUSTER_WIDE,
    )

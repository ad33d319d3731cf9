"""Every metric there is, and the collection of all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from ottla.server.telemetry import clients, cluster, groups, mirror, node, remote, shares

if TYPE_CHECKING:
    from ottla.metrics.metric import Family
    from ottla.server.broker import Broker

#: By concern; the order is that of `docs/monitoring.md` and of a scrape.
SECTIONS: Final = (
    ("The cluster, its topics and partitions", cluster),
    ("Groups and transactions", groups),
    ("Share groups", shares),
    ("Metrics that clients push", clients),
    ("The mirror of another cluster", mirror),
    ("Tiered storage", remote),
    ("This broker", node),
)


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of all sections, each when its turn comes."""
    for _, section in SECTIONS:
        async with aclosing(section.collect(broker)) as families:
            async for family in families:
                yield family

"""Who works on the cluster: one or two of each kind of the simulator's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compat_tests.jepsen import java
from ottla.simulation.cluster.clients.admin import Administrator, make_topic
from ottla.simulation.cluster.clients.client import Client
from ottla.simulation.cluster.clients.consumer import Consumer
from ottla.simulation.cluster.clients.groups import ClassicMember, ConsumerMember, Offsets
from ottla.simulation.cluster.clients.movers import MOVED, Mover, with_moved
from ottla.simulation.cluster.clients.producer import Producer
from ottla.simulation.cluster.clients.transactions import TransactionalProducer
from ottla.simulation.cluster.histories.attempts import Partition
from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["JAVA", "PARTITIONS", "TOPICS", "Founder", "clients"]

_EVENTS: Final = "events"
_COUNT: Final = 3

TOPICS: Final = (_EVENTS, MOVED, java.TOPIC)
PARTITIONS: Final[Sequence[Partition]] = [(_EVENTS, index) for index in range(_COUNT)]
"""Those that the simulator's clients write to, beside those that movers move their records to."""
JAVA: Final[Sequence[Partition]] = [(java.TOPIC, index) for index in range(_COUNT)]


class Founder(Client):
    """Makes all topics."""

    async def work(self) -> None:
        for topic in TOPICS:
            await make_topic(self, topic, _COUNT)


def clients(world: ClientEnvironment) -> list[Client]:
    """All of them at once: what a seed of the simulation has one or two kinds of."""
    classic, modern = Offsets(world, "classic"), Offsets(world, "consumer")
    return [
        *(Consumer(world, f"reader{kind}", with_moved(PARTITIONS), is_committed=bool(kind)) for kind in range(2)),
        *(Producer(world, f"p{number}", PARTITIONS) for number in range(2)),
        *(TransactionalProducer(world, f"t{number}", PARTITIONS) for number in range(2)),
        *(Mover(world, f"mover{number}", PARTITIONS) for number in range(2)),
        *(ClassicMember(world, f"classic{number}", classic, PARTITIONS) for number in range(2)),
        *(ConsumerMember(world, f"member{number}", modern, PARTITIONS) for number in range(2)),
        Administrator(world, "admin", PARTITIONS),
    ]

"""Three nodes of Apache Kafka and three of Ottla side by side."""

from __future__ import annotations

import dataclasses
from typing import Any

from compat_tests.brokers.ottla_broker import SETTINGS as AS_KAFKA
from compat_tests.differential.end_state import FIRST_ID, end_state
from compat_tests.differential.history import History, Step
from compat_tests.differential.playing.nodes import SETTINGS as OF_NODES
from compat_tests.differential.playing.nodes import KafkaNodes, Nodes, OttlaNodes
from compat_tests.differential.playing.pair import OTTLA_ONLY, SETTINGS, Pair
from compat_tests.differential.playing.play import OF_NODES as UNHURRIED
from compat_tests.differential.playing.play import Player, TimeSlice
from compat_tests.differential.spread import OF_ONE_NODE, started_again


class NodePair(Pair):
    """As `Pair`: what differs is which node a request goes to, and that nothing is known everywhere at once."""

    of_nodes = True

    def _make_brokers(self, ottla_overrides: dict[str, str]) -> None:
        settings = SETTINGS | OF_NODES
        self.kafka: Any = KafkaNodes(self._folder / "kafka", settings)
        self.ottla: Any = OttlaNodes(self._folder / "ottla", AS_KAFKA | settings | OTTLA_ONLY | ottla_overrides)

    def _way(self, broker: Any) -> Nodes:
        nodes: Nodes = broker
        return nodes

    def _end_state(self, history: History) -> tuple[Step, ...]:
        """Each name by itself, as they have leaders and coordinators of their own."""
        nothing = dataclasses.replace(history, topics=(), groups=(), transactional_ids=())
        parts = [dataclasses.replace(nothing, topics=(name,)) for name in history.topics]
        parts += [dataclasses.replace(nothing, groups=(name,)) for name in history.groups]
        parts += [dataclasses.replace(nothing, transactional_ids=(name,)) for name in history.transactional_ids]
        asked = [step for number, part in enumerate(parts) for step in end_state(part, FIRST_ID * (1 + number))]
        return tuple(step for step in asked if step.api not in OF_ONE_NODE)

    def _played(self, steps: tuple[Step, ...], prefix: str, pace: TimeSlice) -> list[Player]:
        """With all nodes there in the end: a history of which a part is looked at may lack the start of one."""
        return super()._played(steps + started_again(steps), prefix, pace)

    def _pace(self, pace: TimeSlice) -> tuple[TimeSlice, TimeSlice]:
        return UNHURRIED, UNHURRIED

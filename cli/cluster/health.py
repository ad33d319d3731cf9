"""`ottla cluster health`: what is wrong with a cluster, in a line; the exit code says whether anything is."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final, NamedTuple

from ottla.cli import options
from ottla.client.client import Client
from ottla.client.offsets import NO_LEADER

_NAMED: Final = 5
"""Partitions that the line names."""


class Health(NamedTuple):
    """How many brokers and partitions there are, and those of them that are not as they should be."""

    brokers: int
    partitions: int
    without_leader: list[str]
    under_replicated: list[str]
    missing_brokers: list[int]

    @property
    def is_healthy(self) -> bool:
        return not (self.without_leader or self.under_replicated or self.missing_brokers)


def health(client: Client, arguments: argparse.Namespace) -> int:
    """Print it; 0 if all is well, 1 if not."""
    found = _examine(client)
    if arguments.json:
        print(json.dumps({"healthy": found.is_healthy, **found._asdict()}, indent=2))
    else:
        print(_line(found))
    return 0 if found.is_healthy else 1


def _examine(client: Client) -> Health:
    metadata = client.metadata(None)
    states = [(topic.name, state) for topic in metadata.topics for state in topic.partitions]
    alive = {broker.node_id for broker in metadata.brokers}
    holders = {node_id for _, state in states for node_id in state.replica_nodes}
    return Health(
        len(alive),
        len(states),
        _names((name, state) for name, state in states if state.leader_id == NO_LEADER),
        _names((name, state) for name, state in states if len(state.isr_nodes) < len(state.replica_nodes)),
        sorted(holders - alive),
    )


def _names(states: Any) -> list[str]:
    return sorted(f"{name}-{state.partition_index}" for name, state in states)


def _line(found: Health) -> str:
    counts = f"{options.counted(found.brokers, 'broker')}, {options.counted(found.partitions, 'partition')}"
    wrong = []
    if found.missing_brokers:
        wrong.append(f"brokers that hold replicas and are not there: {', '.join(map(str, found.missing_brokers))}")
    for what, names in (("without a leader", found.without_leader), ("under-replicated", found.under_replicated)):
        if names:
            more = ", …" if len(names) > _NAMED else ""
            wrong.append(f"{options.counted(len(names), 'partition')} {what}: {', '.join(names[:_NAMED])}{more}")
    return f"unhealthy: {'; '.join(wrong)} ({counts})" if wrong else f"healthy: {counts}, all with a leader and in sync"

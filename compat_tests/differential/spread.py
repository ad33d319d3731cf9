"""A history for three nodes: three replicas of each partition, leaders that move, and a node that is killed.

All topics have their replicas in the same order on both brokers, so both have the same leaders.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final

from compat_tests.differential.history import History, Step
from compat_tests.differential.playing.nodes import NODES

#: Whether the node that is killed may not be the coordinator of an area's groups: what members of a group that has not
#: come to rest are told depends on it, and both brokers have another one.
AREAS: Final = {"records": False, "transactions": False, "offsets": False, "topics": False, "classic_groups": True,
                "consumer_groups": True}  # fmt: skip
#: Of all groups or transactions only those that the node which is asked coordinates.
OF_ONE_NODE: Final = frozenset({"LIST_GROUPS", "LIST_TRANSACTIONS"})
_KEYS: Final = ("groups", "group_ids", "groups_names", "transactional_ids")
_FIRST_ID: Final = 50_000
_STARTED_ID: Final = -4


def spread(history: History) -> History:
    """Always the same of one history."""
    rng = random.Random(f"spread {history.area} {history.seed}")
    steps = [_replicated(_of_one_key(step)) for step in history.steps if step.api not in OF_ONE_NODE]
    spares = history.groups[0] if AREAS[history.area] else ""
    kills = not history.is_timed and rng.random() < 0.4
    # Where a coordinator is spared, each broker may lose another node, and then it has other leaders.
    if history.topics and not (kills and spares) and rng.random() < 0.6:
        _put(steps, rng, _moved(rng.choice(history.topics), rng))
    if kills:
        node = rng.choice(NODES)
        down = _put(steps, rng, [Step(id=_FIRST_ID + 10, kill=node, spares=spares)])
        up = Step(id=_FIRST_ID + 11, start=node)
        steps.insert(rng.choice([each for each in _places(steps) if each > down]), up)
    return history.with_steps(tuple(steps))


def started_again(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps that start the nodes which these steps kill and do not start."""
    down: set[int] = set()
    for step in steps:
        down = (down | {step.kill}) - {step.start}
    return tuple(Step(id=_STARTED_ID, start=node) for node in sorted(down - {0}))


def _put(steps: list[Step], rng: random.Random, more: list[Step]) -> int:
    place = rng.choice(_places(steps))
    steps[place:place] = more
    return place


def _places(steps: list[Step]) -> list[int]:
    """Where no answer is awaited."""
    waiting: set[str] = set()
    places = []
    for number, step in enumerate(steps):
        if step.connection in waiting:
            waiting.discard(step.connection)
        if step.may_wait:
            waiting.add(step.connection)
        if not waiting:
            places.append(number + 1)
    return [*places, len(steps)]


def _moved(topic: str, rng: random.Random) -> list[Step]:
    """Another replica becomes the preferred leader of a topic, and is elected."""
    first = rng.choice(NODES[1:])
    replicas = [first, *(node for node in NODES if node != first)]
    partitions = [{"partition_index": index, "replicas": replicas} for index in (0, 1)]
    moves = {"timeout_ms": 10_000, "topics": [{"name": topic, "partitions": partitions}]}
    election = {"election_type": 0, "topic_partitions": [{"topic": topic, "partitions": [0, 1]}], "timeout_ms": 10_000}
    return [
        Step(id=_FIRST_ID, connection="admin", api="ALTER_PARTITION_REASSIGNMENTS", version=0, fields=moves),
        Step(id=_FIRST_ID + 1, connection="admin", api="ELECT_LEADERS", version=2, fields=election),
    ]


def _of_one_key(step: Step) -> Step:
    """Of several groups or transactional ids, those that the first one's coordinator has not are refused: which they
    are differs."""
    few = {name: step.fields[name][:1] for name in _KEYS if isinstance(step.fields.get(name), list)}
    return dataclasses.replace(step, fields=step.fields | few) if few else step


def _replicated(step: Step) -> Step:
    if step.api not in ("CREATE_TOPICS", "CREATE_PARTITIONS"):
        return step
    topics = [_on_all_nodes(step.api, topic) for topic in step.fields.get("topics") or ()]
    return dataclasses.replace(step, fields=step.fields | {"topics": topics})


def _on_all_nodes(api: str, topic: Any) -> Any:
    if not isinstance(topic, dict) or topic.get("assignments"):
        return topic
    if api == "CREATE_PARTITIONS":
        count = topic.get("count", 0)
        return topic | {"assignments": [{"broker_ids": list(NODES)}] * max(count - 1, 0)} if count else topic
    count = topic.get("num_partitions", 0)
    if topic.get("replication_factor") not in (1, 2, -1) or not (count == -1 or count > 0):
        return topic
    assignments = [{"partition_index": index, "broker_ids": list(NODES)} for index in range(max(count, 1))]
    return topic | {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}

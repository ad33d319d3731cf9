"""Which node of several a request goes to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from compat_tests.differential.history import Step
from compat_tests.differential.playing.connection import Connection
from compat_tests.differential.playing.nodes import NODES, Nodes
from compat_tests.differential.values import Values
from compat_tests.wire.wire_routes import Address, coordinated_by
from ottla.kproto.errors import EncodeError
from ottla.kproto.messages import request_class

_PATIENCE_S: Final = 120.0
#: As FindCoordinator counts kinds of keys.
_GROUP: Final = 0
#: What a request calls its topics and their partitions.
_TOPICS: Final = ("topic_data", "topics")
_NAMES: Final = ("name", "topic")
_PARTITIONS: Final = ("partition_data", "partitions", "partition_indexes")
_INDEXES: Final = ("index", "partition", "partition_index")
_OF_LEADERS: Final = frozenset(
    {"PRODUCE", "FETCH", "LIST_OFFSETS", "DELETE_RECORDS", "OFFSET_FOR_LEADER_EPOCH", "DESCRIBE_PRODUCERS",
     "SHARE_FETCH", "SHARE_ACKNOWLEDGE"}
)  # fmt: skip


class Direct:
    """To the one node that there is."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def close(self) -> None:
        """There is nothing to close."""

    def address_for(self, step: Step) -> Address:
        return self._address


class Routes:
    """The way of each request: to the leader of the first partition, or to the coordinator of the first group or
    transactional id, that it names; otherwise to the first node that is alive.

    Nothing is kept: leaders and coordinators move while a history is played.
    """

    def __init__(self, nodes: Nodes, values: Values) -> None:
        self._nodes = nodes
        self._values = values
        self._guides: dict[Address, Connection] = {}
        #: The node that was killed in the place of the one that was to be.
        self._killed: dict[int, int] = {}

    def close(self) -> None:
        for guide in self._guides.values():
            guide.close()

    @property
    def home(self) -> Address:
        return self._nodes.address(min(self._nodes.live))

    def address_for(self, step: Step) -> Address:
        # Values that build a frame keep what is put into it afterwards.
        values = Values(self._values.prefix)
        values.answers, values.new_epoch = self._values.answers, self._values.new_epoch
        try:
            request = values.message(request_class(step.api_key), step.fields, step.version)
        except (EncodeError, LookupError, TypeError, ValueError):
            return self.home
        found = coordinated_by(request)
        if found is not None:
            return self._coordinator(*found)
        if step.api in _OF_LEADERS:
            return self._leader(*first_partition(request))
        return self.home

    def kill(self, node_id: int, *, spares: str = "") -> Address:
        """Returns where it was, when others lead everything of which they have replicas.

        The next node is killed in the place of the coordinator of the group `spares`.
        """
        asked_id = node_id
        if spares and self._coordinator(_GROUP, self._values.resolved(spares)) == self._nodes.address(node_id):
            node_id = NODES[node_id % len(NODES)]
        self._killed[asked_id] = node_id
        address = self._nodes.address(node_id)
        self._nodes.kill_node(node_id)
        gone = (-1, node_id)
        self._until(
            lambda it: (
                set(it["replica_nodes"]) == {node_id}
                or (it["leader_id"] not in gone and node_id not in it["isr_nodes"])
            )
        )
        return address

    def start(self, node_id: int) -> None:
        """Returns when it is in sync everywhere. Of a shortened history the step that killed it may be missing."""
        killed = self._killed.pop(node_id, None)
        if killed is None:
            return
        self._nodes.start_node(killed)
        self._until(lambda partition: set(partition["isr_nodes"]) == set(partition["replica_nodes"]))

    def _until(self, is_so: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        for node_id in sorted(self._nodes.live):
            while not all(map(is_so, self._partitions(self._nodes.address(node_id)))):
                assert time.monotonic() < deadline, "the nodes do not agree in time"
                time.sleep(0.05)

    def _partitions(self, address: Address) -> Iterator[dict[str, Any]]:
        answer = self._ask(address, "METADATA", 12, {"topics": None, "allow_auto_topic_creation": False})
        brokers = {each["node_id"] for each in answer["brokers"]}
        if brokers != self._nodes.live:
            yield {"leader_id": -1, "isr_nodes": [], "replica_nodes": [0]}
        for topic in answer["topics"]:
            yield from topic["partitions"]

    def _leader(self, topic: Any, index: Any) -> Address:
        asked = {"name": topic} if isinstance(topic, str) else {"name": None, "topic_id": topic}
        if topic is None:
            return self.home
        answer = self._ask(self.home, "METADATA", 12, {"topics": [asked], "allow_auto_topic_creation": False})
        leaders = {each["partition_index"]: each["leader_id"] for each in answer["topics"][0]["partitions"]}
        leader = leaders.get(index, next(iter(leaders.values()), -1))
        return self._nodes.address(leader) if leader in self._nodes.live else self.home

    def _coordinator(self, kind: int, key: str) -> Address:
        """Home as long as there is none: it says what any other would."""
        answer = self._ask(self.home, "FIND_COORDINATOR", 6, {"key_type": kind, "coordinator_keys": [key]})
        (found,) = answer["coordinators"]
        return self.home if found["node_id"] not in self._nodes.live else (found["host"], found["port"])

    def _ask(self, address: Address, api: str, version: int, fields: dict[str, Any]) -> Any:
        guide = self._guides.setdefault(address, Connection(address))
        # Names are those of an answer, not of a history.
        step = Step(id=-2, api=api, version=version, fields=fields)
        # The connection may be one to a process that was killed meanwhile.
        for _ in range(2):
            outcome = guide.send(step, Values("")) or guide.receive(_PATIENCE_S)
            if outcome is not None and outcome.word == "answered":
                return outcome.answer
        raise AssertionError(f"{api} is not answered: {outcome}")


def first_partition(request: Any) -> tuple[Any, Any]:
    """Topic (its name, its id, or None) and index of the first partition of a request."""
    topics = next((found for name in _TOPICS if (found := getattr(request, name, None))), None)
    if not topics:
        return None, -1
    topic = next((found for name in _NAMES if (found := getattr(topics[0], name, None))), None)
    if topic is None:
        topic = getattr(topics[0], "topic_id", None)
    partitions = next((found for name in _PARTITIONS if (found := getattr(topics[0], name, None))), None)
    first = partitions[0] if partitions else -1
    return topic, first if isinstance(first, int) else next(
        (value for name in _INDEXES if (value := getattr(first, name, None)) is not None), -1
    )

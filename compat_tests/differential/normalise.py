"""What two brokers may answer differently becomes the same: ids become names, wording and the time of day go.

One `Normaliser` sees the answers of one broker to one history in the order of their steps. Ids that brokers choose
(members, producers, topics) are named in the order in which they first appear, and the id of a topic after the topic
where the answer names both. Lists that Apache Kafka answers in the order of a hash table are sorted; those of
`_ORDERED` keep their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from compat_tests.differential.batches import described_batches
from compat_tests.differential.history import PREFIX_MARK, Step

#: Differ between any two brokers, and from one time to the next.
_DROPPED: Final = frozenset(
    {
        "throttle_time_ms", "host", "port", "cluster_id", "total_bytes", "usable_bytes", "log_dir",
        "finalized_features_epoch",
    }
)  # fmt: skip
_MESSAGES: Final = frozenset({"error_message", "batch_index_error_message", "acknowledge_error_message"})
#: Answers whose lists are in the order of the request, or of offsets.
_ORDERED: Final = frozenset(
    {
        "PRODUCE", "FETCH", "OFFSET_FETCH",
        "LEAVE_GROUP", "FIND_COORDINATOR",
        "INCREMENTAL_ALTER_CONFIGS", "CREATE_ACLS",
    }
)  # fmt: skip
#: Lists within these whose order is a hash table's all the same.
_UNORDERED: Final = frozenset(
    {"members", "configs", "topic_partitions", "partition_errors", "endpoints", "node_endpoints"}
)
#: Answers about the whole broker: what other histories left there goes.
_OF_ALL: Final = {
    "LIST_GROUPS": "groups",
    "LIST_TRANSACTIONS": "transaction_states",
    "METADATA": "topics",
    "DESCRIBE_TOPIC_PARTITIONS": "topics",
    "DESCRIBE_CLIENT_QUOTAS": "entries",
    "DESCRIBE_ACLS": "resources",
    "DESCRIBE_USER_SCRAM_CREDENTIALS": "results",
    "LIST_CONFIG_RESOURCES": "config_resources",
}
#: Fields that say what an element of a list is about.
SUBJECTS: Final = frozenset(
    {
        "name", "topic", "topic_name", "topic_id", "partition", "partition_index", "index", "group_id", "member_id",
        "resource_name", "resource_type", "transactional_id", "config_name", "entity_type", "entity_name", "user",
        "at", "api_key", "feature", "key",
    }
)  # fmt: skip
_MEMBER_FIELDS: Final = frozenset({"member_id", "leader"})
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHORT_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
#: What a client has said comes back as it was.
CLIENTS_OWN: Final = frozenset({"committed_leader_epoch"})
#: Here all epochs are those that the asking broker has said.
_OF_CLIENTS: Final = frozenset({"READ_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE_SUMMARY"})
#: Ids of nodes, and lists of them.
_NODES: Final = frozenset(
    {
        "node_id",
        "leader_id",
        "controller_id",
        "replica_nodes",
        "isr_nodes",
        "offline_replicas",
        "preferred_read_replica",
        "eligible_leader_replicas",
        "last_known_elr",
    }
)
_DESCRIBE_TOPICS: Final = frozenset({"METADATA", "DESCRIBE_TOPIC_PARTITIONS"})
_TOPIC_SOURCE: Final = 1
_NEAR_MS: Final = 3_600_000
#: Topic ids that mean something: none, and the metadata log's.
_KNOWN_UUIDS: Final = {UUID(int=0): "none", UUID(int=1): "metadata"}


class Normaliser:
    def __init__(self, prefix: str, now_ms: int, new_epoch: int = 0, *, of_nodes: bool = False) -> None:
        """`new_epoch` is the leader epoch that the broker gives to new topics: its starts count in it.

        `of_nodes`: each broker is several nodes. Then which of them it is does not matter, and a leader epoch only as
        far as it is the same as another one.
        """
        self._prefix = prefix
        self._now_ms = now_ms
        self._new_epoch = new_epoch
        self._of_nodes = of_nodes
        self._names: dict[str, dict[Any, str]] = {}
        #: What ids of topics are called whose topics have been named beside them.
        self._topics = dict(_KNOWN_UUIDS)
        self._ids_of_topics: dict[str, set[UUID]] = {}

    def answer(self, step: Step, answer: Any) -> Any:
        """The answer to a step, made of what JSON has."""
        api = step.api
        is_of_all = not (step.fields.get("topics") or step.fields.get("users"))
        if isinstance(answer, dict) and _OF_ALL.get(api, "") in answer and is_of_all:
            listed = answer[_OF_ALL[api]]
            answer = answer | {_OF_ALL[api]: [self._without_others(each) for each in self._own(listed)]}
        if api == "OFFSET_FETCH" and _asks_for_all_offsets(step):
            api = "OFFSET_FETCH of all"
            answer = self._without_offsets_of_others(step, answer)
        return self._value(api, "", answer, self._name)

    def _own(self, listed: list[Any] | None) -> list[Any]:
        return [each for each in listed or () if self._prefix in json.dumps(each, default=str)]

    def _without_others(self, resource: dict[str, Any]) -> dict[str, Any]:
        """The cluster, and what is called `*`, have the rules of other histories, too."""
        if "acls" not in resource or self._prefix in resource["resource_name"]:
            return resource
        return resource | {"acls": self._own(resource["acls"])}

    def _without_offsets_of_others(self, step: Step, answer: Any) -> Any:
        """A group whose name is of all histories has the offsets of other histories, too."""
        if not isinstance(answer, dict) or "groups" not in answer:
            return answer
        groups = [each if self._prefix in each["group_id"] else each | {"topics": []} for each in answer["groups"]]
        is_own = PREFIX_MARK in str(step.fields.get("group_id"))
        return answer | {"groups": groups, "topics": answer["topics"] if is_own else []}

    def _value(self, api: str, field: str, value: Any, name: Callable[[str, Any], str]) -> Any:
        if field in _MESSAGES:
            return value if value is None else "..."
        if isinstance(value, dict):
            if api in _DESCRIBE_TOPICS and str(value.get("name")).startswith("__"):
                # How often its partitions were led anew is the brokers' own affair.
                value = value | {"partitions": [_without_epoch(each) for each in value["partitions"]]}
            self._name_topic(value)
            # The producer of what is not there is no producer.
            own_name = self._known if value.get("error_code") else name
            return {
                key: self._value(api, _meaning(field, key), each, own_name if key == "producer_id" else name)
                for key, each in value.items()
                if key not in _DROPPED
            }
        if isinstance(value, list):
            return self._list(api, field, value, name)
        if isinstance(value, str):
            return self._text(field, value, name)
        if isinstance(value, bytes):
            return self._bytes(api, field, value, name)
        if isinstance(value, UUID):
            return self._topics.get(value) or name("topic", value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number("" if api in _OF_CLIENTS else field, value, name)
        return value

    def _list(self, api: str, field: str, value: list[Any], name: Callable[[str, Any], str]) -> list[Any]:
        if field == "configs":
            value = [each for each in value if not _is_by_default(api, each)]
        if len(value) > 1 and (api not in _ORDERED or field in _UNORDERED):
            value = sorted(value, key=lambda each: _place(self._value(api, field, each, self._known)))
        return [self._value(api, field, each, name) for each in value]

    def _text(self, field: str, value: str, name: Callable[[str, Any], str]) -> str:
        text = value.replace(self._prefix, PREFIX_MARK)
        text = _UUID.sub(lambda match: name("member", match.group()), text)
        if field in _MEMBER_FIELDS and _SHORT_UUID.fullmatch(text):
            return name("member", text)
        return text

    def _bytes(self, api: str, field: str, value: bytes, name: Callable[[str, Any], str]) -> Any:
        if api in ("FETCH", "SHARE_FETCH") and field == "records":
            return self._value("FETCH", "batches", described_batches(value), name)
        data = value.replace(self._prefix.encode(), PREFIX_MARK.encode())
        return data.decode() if data.isascii() and data.decode().isprintable() else f"hex {data.hex()}"

    def _number(self, field: str, value: int, name: Callable[[str, Any], str]) -> Any:
        if (field == "producer_id" and value >= 0) or (field == "session_id" and value > 0):
            return name(field.removesuffix("_id"), value)
        if self._of_nodes and value >= 0:
            if field in _NODES:
                return "a node"
            if field.endswith("leader_epoch") and field not in CLIENTS_OWN:
                return name("epoch", value)
        if field.endswith("leader_epoch") and field not in CLIENTS_OWN and value >= self._new_epoch:
            return value - self._new_epoch
        return "now" if abs(value - self._now_ms) < _NEAR_MS else value

    def _name_topic(self, element: dict[str, Any]) -> None:
        """By its name: one of the brokers may have told more ids before than the other one."""
        name, topic_id = element.get("name"), element.get("topic_id")
        if isinstance(name, str) and isinstance(topic_id, UUID) and topic_id not in self._topics:
            ids = self._ids_of_topics.setdefault(name, set())
            ids.add(topic_id)
            self._topics[topic_id] = f"topic {len(ids)} of {name.replace(self._prefix, PREFIX_MARK)}"

    def _known(self, kind: str, value: Any) -> str:
        """To sort by: what has no name yet is given none."""
        return self._names.get(kind, {}).get(value, kind)

    def _name(self, kind: str, value: Any) -> str:
        names = self._names.setdefault(kind, {})
        return names.setdefault(value, f"{kind} {len(names) + 1}")


def subject(element: Any) -> str:
    """What an element of a list is about: of a topic its name, if there is one; a topic that is refused has no id."""
    if not isinstance(element, dict):
        return json.dumps(element, default=str)
    about = {name: value for name, value in element.items() if name in SUBJECTS}
    if about.get("name") is not None:
        about.pop("topic_id", None)
    return json.dumps(about, default=str)


def _place(element: Any) -> tuple[str, str]:
    """First by what an element is about: what is said of it may be what differs."""
    return subject(element), json.dumps(element, default=str)


def _meaning(field: str, key: str) -> str:
    """What a field of a field is known as."""
    return "leader_epoch" if (field, key) == ("diverging_epoch", "epoch") else key


def _without_epoch(partition: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in partition.items() if name != "leader_epoch"}


def _asks_for_all_offsets(step: Step) -> bool:
    if step.version < 8:
        return step.fields.get("topics") is None
    return any(group.get("topics") is None for group in step.fields.get("groups") or ())


def _is_by_default(api: str, config: dict[str, Any]) -> bool:
    """CreateTopics answers all settings of a topic: of those that nobody set, releases have different ones."""
    is_default = api == "CREATE_TOPICS" and config["config_source"] != _TOPIC_SOURCE
    return is_default or str(config["name"]).startswith("ottla.")

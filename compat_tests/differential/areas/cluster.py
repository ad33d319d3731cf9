"""What administrators ask about the cluster and its brokers, and clients before anything else; nothing here changes it.

Settings of a client's metrics and of a group are those of this history alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.differential.draft import Draft

_STEPS = 30
_NO_TOKEN = {"$bytes": "00"}
_NOBODY = {"$uuid": "00000000-0000-0000-0000-00000000beef"}
#: What brokers and controllers ask each other.
OF_CONTROLLERS = (
    "VOTE", "BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH", "ALTER_PARTITION", "ENVELOPE", "FETCH_SNAPSHOT",
    "BROKER_REGISTRATION", "BROKER_HEARTBEAT", "ALLOCATE_PRODUCER_IDS", "CONTROLLER_REGISTRATION",
    "ASSIGN_REPLICAS_TO_DIRS", "UPDATE_RAFT_VOTER",
)  # fmt: skip
_SETTINGS: dict[int, tuple[tuple[str, str | None], ...]] = {
    4: (("log.retention.ms", "1000"), ("message.max.bytes", "x"), ("no.such.config", "1"), ("broker.id", "7")),
    16: (("interval.ms", "1000"), ("interval.ms", "1"), ("metrics", "org.apache."), ("match", "(")),
    32: (("consumer.session.timeout.ms", "45000"), ("share.auto.offset.reset", "latest"), ("no.such", "1")),
}


class _Cluster:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.topic = draft.create_topic(partitions=2)
        self.group = draft.group()

    @property
    def topics(self) -> list[str]:
        return self.draft.odd([self.topic], ["~unknown"], [self.topic, "~unknown"], chance=0.2)

    def api_versions(self) -> None:
        draft = self.draft
        fields = {
            "client_software_name": draft.odd("wire", "", "a b", "-wire", "w" * 300, chance=0.3),
            "client_software_version": draft.odd("1.0", "", "1 0", "1.0-", chance=0.2),
            "cluster_id": draft.odd(None, "~another", chance=0.2),
            "node_id": draft.odd(-1, 99, -2, chance=0.2),
        }
        draft.ask("API_VERSIONS", fields)

    def metadata(self) -> None:
        draft = self.draft
        topics = draft.odd(
            [{"name": self.topic}],
            [{"name": None, "topic_id": draft.topic_id(self.topic)}],
            [{"name": None, "topic_id": _NOBODY}],
            [],
            None,
            chance=0.5,
        )
        version = draft.version("METADATA")
        is_named = bool(topics) and topics[0]["name"] is not None
        fields = {
            "topics": topics if is_named or version >= 10 else [{"name": self.topic}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": draft.chance(0.3),
            "include_cluster_authorized_operations": draft.chance(0.1),
        }
        draft.ask("METADATA", fields, version)

    def describe_cluster(self) -> None:
        draft = self.draft
        fields = {
            "include_cluster_authorized_operations": draft.chance(0.3),
            "endpoint_type": draft.odd(1, 2, 0, 3, -1, chance=0.3),
            "include_fenced_brokers": draft.chance(0.3),
        }
        draft.ask("DESCRIBE_CLUSTER", fields)

    def describe_log_dirs(self) -> None:
        draft = self.draft
        topics = [{"topic": name, "partitions": draft.odd([0, 1], [0], [], [9], chance=0.3)} for name in self.topics]
        draft.ask("DESCRIBE_LOG_DIRS", {"topics": topics})

    def move_log(self) -> None:
        draft = self.draft
        topics = [{"name": name, "partitions": draft.pick(([0], [9], [-1]))} for name in self.topics]
        path = draft.odd("/no/such/folder", "", "relative", "~", chance=0.3)
        draft.ask("ALTER_REPLICA_LOG_DIRS", {"dirs": [{"path": path, "topics": topics}]})

    def tokens(self) -> None:
        """There is no secret key, so there are no tokens."""
        draft = self.draft
        principal = {"principal_type": draft.odd("User", "", "Group"), "principal_name": "~alice"}
        owner = {"owner_principal_type": draft.odd("User", "", chance=0.5), "owner_principal_name": "~alice"}
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            ("CREATE_DELEGATION_TOKEN", {"renewers": [principal], "max_lifetime_ms": draft.odd(-1, 0, 1000), **owner}),
            ("RENEW_DELEGATION_TOKEN", {"hmac": _NO_TOKEN, "renew_period_ms": 1000}),
            ("EXPIRE_DELEGATION_TOKEN", {"hmac": _NO_TOKEN, "expiry_time_period_ms": -1}),
            ("DESCRIBE_DELEGATION_TOKEN", {"owners": draft.pick((None, [], [principal]))}),
        )
        draft.ask(*draft.pick(asked))

    def quorum(self) -> None:
        draft = self.draft
        topic = draft.odd("__cluster_metadata", self.topic, "", chance=0.3)
        topics = [{"topic_name": topic, "partitions": [{"partition_index": draft.odd(0, 1, -1)}]}]
        draft.ask("DESCRIBE_QUORUM", {"topics": draft.odd(topics, [], chance=0.1)})

    def voters(self) -> None:
        """Of none that there are."""
        draft = self.draft
        listeners = draft.odd([{"name": "CONTROLLER", "host": "localhost", "port": 1}], [], chance=0.3)
        voter = {"cluster_id": draft.odd(None, "~another"), "voter_id": 99, "voter_directory_id": _NOBODY}
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            (
                "ADD_RAFT_VOTER",
                voter | {"timeout_ms": 1000, "listeners": listeners, "ack_when_committed": draft.chance(0.5)},
            ),
            ("REMOVE_RAFT_VOTER", voter),
            ("UNREGISTER_CONTROLLER", {"controller_id": draft.pick((99, -1))}),
        )
        draft.ask(*draft.pick(asked))

    def telemetry(self) -> None:
        """Nobody receives the metrics of clients."""
        draft = self.draft
        pushed = {
            "client_instance_id": _NOBODY,
            "subscription_id": draft.pick((0, 1)),
            "terminating": draft.chance(0.2),
            "compression_type": draft.pick((0, 4, 9)),
            "metrics": {"$bytes": "00"},
        }
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            ("GET_TELEMETRY_SUBSCRIPTIONS", {"client_instance_id": _NOBODY}),
            ("PUSH_TELEMETRY", pushed),
        )
        draft.ask(*draft.pick(asked), on="b")

    def unregister(self) -> None:
        self.draft.ask("UNREGISTER_BROKER", {"broker_id": self.draft.pick((99, -1, 2**31 - 1))})

    def log_in(self) -> None:
        """The listener knows no logins."""
        draft = self.draft
        mechanism = draft.odd("PLAIN", "SCRAM-SHA-256", "", "NONE", chance=0.4)
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            ("SASL_HANDSHAKE", {"mechanism": mechanism}),
            ("SASL_AUTHENTICATE", {"auth_bytes": {"$bytes": draft.odd("00616100", "", chance=0.2)}}),
        )
        draft.ask(*draft.pick(asked))

    def features(self) -> None:
        draft = self.draft
        update = {
            "feature": draft.pick(("no.such", "")),
            "max_version_level": draft.pick((0, 1, -1)),
            "allow_downgrade": draft.chance(0.5),
            "upgrade_type": draft.odd(1, 2, 3, 0, 9, chance=0.4),
        }
        updates = draft.odd([update], [], [update, update], chance=0.2)
        draft.ask("UPDATE_FEATURES", {"timeout_ms": 10_000, "feature_updates": updates}, draft.pick((0, 0, 1, 2)))

    def list_configs(self) -> None:
        kinds = self.draft.odd([16], [], [2, 16], [4], [32], [0], [99], [16, 16], chance=0.6)
        self.draft.ask("LIST_CONFIG_RESOURCES", {"resource_types": kinds})

    def _resource(self) -> tuple[int, str]:
        draft = self.draft
        kind = draft.pick(tuple(_SETTINGS))
        name = {4: draft.odd("1", "", "99", "x", chance=0.4), 16: "~metrics", 32: draft.odd(self.group, "", chance=0.1)}
        return kind, name[kind]

    def describe_configs(self) -> None:
        draft = self.draft
        kind, name = self._resource()
        keys = draft.odd([key for key, _ in _SETTINGS[kind]], ["no.such.config"], chance=0.2)
        resource = {
            "resource_type": draft.odd(kind, 0, 8, 99, chance=0.08),
            "resource_name": name,
            "configuration_keys": keys,
        }
        fields = {"resources": [resource], "include_synonyms": draft.chance(0.3)}
        draft.ask("DESCRIBE_CONFIGS", fields | {"include_documentation": draft.chance(0.2)})

    def alter_configs(self) -> None:
        draft = self.draft
        kind, name = self._resource()
        key, value = draft.pick(_SETTINGS[kind])
        config = {"name": key, "config_operation": draft.odd(0, 1, 2, 3, chance=0.3), "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [config]}
        # What a broker is told stays with it: it is only asked whether it would take that.
        fields = {"resources": [resource], "validate_only": kind == 4 or draft.chance(0.2)}
        draft.ask("INCREMENTAL_ALTER_CONFIGS", fields, strays=kind != 4)

    def delete_by_id(self) -> None:
        draft = self.draft
        name = draft.create_topic("~t1")
        topic_id = draft.odd(draft.topic_id(name), _NOBODY, chance=0.2)
        topics = [{"name": None, "topic_id": topic_id}] * draft.odd(1, 2, chance=0.1)
        draft.ask("DELETE_TOPICS", {"topics": topics, "timeout_ms": 10_000}, 6)

    def of_controllers(self) -> None:
        """No client's listener takes them."""
        self.draft.ask(self.draft.pick(OF_CONTROLLERS), {}, on="b")


def write(draft: Draft) -> None:
    cluster = _Cluster(draft)
    actions: dict[Callable[[], None], float] = {
        cluster.api_versions: 2, cluster.metadata: 3, cluster.describe_cluster: 2, cluster.describe_log_dirs: 2,
        cluster.move_log: 1, cluster.tokens: 1, cluster.quorum: 1, cluster.voters: 0.8, cluster.telemetry: 0.3,
        cluster.unregister: 0.5, cluster.log_in: 1, cluster.features: 1, cluster.list_configs: 2,
        cluster.describe_configs: 3, cluster.alter_configs: 3, cluster.delete_by_id: 0.5,
        cluster.of_controllers: 1,
    }  # fmt: skip
    while len(draft) < _STEPS:
        draft.random.choices(list(actions), list(actions.values()))[0]()

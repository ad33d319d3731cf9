"""What brokers of earlier releases of Apache Kafka serve: the latest version of each API, and the levels of features.

With `ottla.kafka.release` a broker passes for one of them, so that a client can be tested against it. What either kind
of broker of that release serves counts (with ZooKeeper before 4.0, or KRaft), and APIs between brokers are left out.
Sources: the `validVersions` and `listeners` of the message definitions at each release's tag; `MetadataVersion` and the
features' enums at the same tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.kproto.api_keys import ApiKey

_CHANGES: Final[Mapping[str, str]] = {
    "2.0": (
        "PRODUCE=6 FETCH=8 LIST_OFFSETS=3 METADATA=6 OFFSET_COMMIT=4 OFFSET_FETCH=4 FIND_COORDINATOR=2 "
        "JOIN_GROUP=3 HEARTBEAT=2 LEAVE_GROUP=2 SYNC_GROUP=2 DESCRIBE_GROUPS=2 LIST_GROUPS=2 SASL_HANDSHAKE=1 "
        "API_VERSIONS=2 CREATE_TOPICS=3 DELETE_TOPICS=2 DELETE_RECORDS=1 INIT_PRODUCER_ID=1 "
        "OFFSET_FOR_LEADER_EPOCH=1 ADD_PARTITIONS_TO_TXN=1 ADD_OFFSETS_TO_TXN=1 END_TXN=1 WRITE_TXN_MARKERS=0 "
        "TXN_OFFSET_COMMIT=1 DESCRIBE_ACLS=1 CREATE_ACLS=1 DELETE_ACLS=1 DESCRIBE_CONFIGS=2 ALTER_CONFIGS=1 "
        "ALTER_REPLICA_LOG_DIRS=1 DESCRIBE_LOG_DIRS=1 SASL_AUTHENTICATE=0 CREATE_PARTITIONS=1 "
        "CREATE_DELEGATION_TOKEN=1 RENEW_DELEGATION_TOKEN=1 EXPIRE_DELEGATION_TOKEN=1 "
        "DESCRIBE_DELEGATION_TOKEN=1 DELETE_GROUPS=1"
    ),
    "2.1": (
        "PRODUCE=7 FETCH=10 LIST_OFFSETS=4 METADATA=7 OFFSET_COMMIT=6 OFFSET_FETCH=5 DELETE_TOPICS=3 "
        "OFFSET_FOR_LEADER_EPOCH=2 TXN_OFFSET_COMMIT=2"
    ),
    "2.2": "LIST_OFFSETS=5 JOIN_GROUP=4 SASL_AUTHENTICATE=1 ELECT_LEADERS=0",
    "2.3": (
        "FETCH=11 METADATA=8 OFFSET_COMMIT=7 JOIN_GROUP=5 HEARTBEAT=3 SYNC_GROUP=3 DESCRIBE_GROUPS=3 "
        "OFFSET_FOR_LEADER_EPOCH=3 INCREMENTAL_ALTER_CONFIGS=0"
    ),
    "2.4": (
        "PRODUCE=8 METADATA=9 OFFSET_COMMIT=8 OFFSET_FETCH=6 FIND_COORDINATOR=3 JOIN_GROUP=6 HEARTBEAT=4 "
        "LEAVE_GROUP=4 SYNC_GROUP=4 DESCRIBE_GROUPS=5 LIST_GROUPS=3 API_VERSIONS=3 CREATE_TOPICS=5 "
        "DELETE_TOPICS=4 INIT_PRODUCER_ID=2 CREATE_DELEGATION_TOKEN=2 DELETE_GROUPS=2 ELECT_LEADERS=2 "
        "INCREMENTAL_ALTER_CONFIGS=1 ALTER_PARTITION_REASSIGNMENTS=0 LIST_PARTITION_REASSIGNMENTS=0 "
        "OFFSET_DELETE=0"
    ),
    "2.5": (
        "OFFSET_FETCH=7 JOIN_GROUP=7 SYNC_GROUP=5 INIT_PRODUCER_ID=3 TXN_OFFSET_COMMIT=3 DESCRIBE_ACLS=2 "
        "CREATE_ACLS=2 DELETE_ACLS=2 SASL_AUTHENTICATE=2 CREATE_PARTITIONS=2 RENEW_DELEGATION_TOKEN=2 "
        "EXPIRE_DELEGATION_TOKEN=2 DESCRIBE_DELEGATION_TOKEN=2"
    ),
    "2.6": (
        "LIST_GROUPS=4 DELETE_RECORDS=2 DESCRIBE_CONFIGS=3 DESCRIBE_LOG_DIRS=2 DESCRIBE_CLIENT_QUOTAS=0 "
        "ALTER_CLIENT_QUOTAS=0"
    ),
    "2.7": (
        "FETCH=12 CREATE_TOPICS=6 DELETE_TOPICS=5 INIT_PRODUCER_ID=4 ADD_PARTITIONS_TO_TXN=2 "
        "ADD_OFFSETS_TO_TXN=2 END_TXN=2 CREATE_PARTITIONS=3 DESCRIBE_USER_SCRAM_CREDENTIALS=0 "
        "ALTER_USER_SCRAM_CREDENTIALS=0 UPDATE_FEATURES=0"
    ),
    "2.8": (
        "PRODUCE=9 LIST_OFFSETS=6 METADATA=11 CREATE_TOPICS=7 DELETE_TOPICS=6 OFFSET_FOR_LEADER_EPOCH=4 "
        "ADD_PARTITIONS_TO_TXN=3 ADD_OFFSETS_TO_TXN=3 END_TXN=3 WRITE_TXN_MARKERS=1 DESCRIBE_CONFIGS=4 "
        "ALTER_CONFIGS=2 ALTER_REPLICA_LOG_DIRS=2 DESCRIBE_CLIENT_QUOTAS=1 ALTER_CLIENT_QUOTAS=1 "
        "DESCRIBE_CLUSTER=0 DESCRIBE_PRODUCERS=0"
    ),
    "3.0": "LIST_OFFSETS=7 OFFSET_FETCH=8 FIND_COORDINATOR=4 DESCRIBE_TRANSACTIONS=0 LIST_TRANSACTIONS=0",
    "3.1": "FETCH=13 METADATA=12",
    "3.2": "JOIN_GROUP=9 LEAVE_GROUP=5 DESCRIBE_LOG_DIRS=3",
    "3.3": (
        "DESCRIBE_ACLS=3 CREATE_ACLS=3 DELETE_ACLS=3 DESCRIBE_LOG_DIRS=4 CREATE_DELEGATION_TOKEN=3 "
        "DESCRIBE_DELEGATION_TOKEN=3 DESCRIBE_QUORUM=1 UPDATE_FEATURES=1 UNREGISTER_BROKER=0"
    ),
    "3.4": "",
    "3.5": "FETCH=15 LIST_OFFSETS=8",
    "3.6": "ADD_PARTITIONS_TO_TXN=4",
    "3.7": (
        "PRODUCE=10 FETCH=16 OFFSET_COMMIT=9 OFFSET_FETCH=9 DESCRIBE_CLUSTER=1 GET_TELEMETRY_SUBSCRIPTIONS=0 "
        "PUSH_TELEMETRY=0 LIST_CONFIG_RESOURCES=0"
    ),
    "3.8": (
        "PRODUCE=11 FIND_COORDINATOR=5 LIST_GROUPS=5 INIT_PRODUCER_ID=5 ADD_PARTITIONS_TO_TXN=5 "
        "ADD_OFFSETS_TO_TXN=4 END_TXN=4 TXN_OFFSET_COMMIT=4 LIST_TRANSACTIONS=1 DESCRIBE_TOPIC_PARTITIONS=0"
    ),
    "3.9": (
        "FETCH=17 LIST_OFFSETS=9 FIND_COORDINATOR=6 API_VERSIONS=4 DESCRIBE_QUORUM=2 ADD_RAFT_VOTER=0 "
        "REMOVE_RAFT_VOTER=0"
    ),
    "4.0": (
        "PRODUCE=12 LIST_OFFSETS=10 METADATA=13 DESCRIBE_GROUPS=6 END_TXN=5 TXN_OFFSET_COMMIT=5 "
        "UPDATE_FEATURES=2 DESCRIBE_CLUSTER=2 CONSUMER_GROUP_HEARTBEAT=1 CONSUMER_GROUP_DESCRIBE=1"
    ),
    "4.1": (
        "PRODUCE=13 FETCH=18 ALTER_PARTITION_REASSIGNMENTS=1 LIST_TRANSACTIONS=2 LIST_CONFIG_RESOURCES=1 "
        "SHARE_GROUP_HEARTBEAT=1 SHARE_GROUP_DESCRIBE=1 SHARE_FETCH=1 SHARE_ACKNOWLEDGE=1 "
        "INITIALIZE_SHARE_GROUP_STATE=0 READ_SHARE_GROUP_STATE=0 WRITE_SHARE_GROUP_STATE=0 "
        "DELETE_SHARE_GROUP_STATE=0 READ_SHARE_GROUP_STATE_SUMMARY=0 DESCRIBE_SHARE_GROUP_OFFSETS=0 "
        "ALTER_SHARE_GROUP_OFFSETS=0 DELETE_SHARE_GROUP_OFFSETS=0"
    ),
    "4.2": (
        "LIST_OFFSETS=11 OFFSET_COMMIT=10 OFFSET_FETCH=10 WRITE_TXN_MARKERS=2 SHARE_FETCH=2 "
        "SHARE_ACKNOWLEDGE=2 ADD_RAFT_VOTER=1 WRITE_SHARE_GROUP_STATE=1 READ_SHARE_GROUP_STATE_SUMMARY=1 "
        "STREAMS_GROUP_HEARTBEAT=0 STREAMS_GROUP_DESCRIBE=0 DESCRIBE_SHARE_GROUP_OFFSETS=1"
    ),
    "4.3": "DESCRIBE_LOG_DIRS=5",
    "4.4": (
        "API_VERSIONS=5 TXN_OFFSET_COMMIT=6 DELETE_GROUPS=3 STREAMS_GROUP_HEARTBEAT=1 "
        "STREAMS_GROUP_DESCRIBE=1 STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE=0 UNREGISTER_CONTROLLER=0"
    ),
}
"""By release, which APIs it added or raised, and to which version. No release before 4.0 has lost one of these."""

_FEATURES: Final[Mapping[str, Mapping[str, int]]] = {
    "3.3": {"metadata.version": 7},
    "3.4": {"metadata.version": 8},
    "3.5": {"metadata.version": 11},
    "3.6": {"metadata.version": 14},
    "3.7": {"metadata.version": 19},
    "3.8": {"metadata.version": 20},
    "3.9": {"metadata.version": 21},
    "4.0": {
        "eligible.leader.replicas.version": 0,
        "group.version": 1,
        "metadata.version": 25,
        "transaction.version": 2,
    },
    "4.1": {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 27,
        "share.version": 0,
        "transaction.version": 2,
    },
    "4.2": {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 29,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    },
    "4.3": {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    },
    "4.4": {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 33,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    },
}
"""The levels that a new cluster of a release begins with; earlier releases have no features."""

RELEASES: Final = tuple(_CHANGES)
"""The releases that a broker can pass for, from the oldest."""


def latest_versions(release: str) -> Mapping[ApiKey, int]:
    """The latest version of each API that a broker of this release serves. Raises KeyError for an unknown release."""
    versions: dict[ApiKey, int] = {}
    for name in RELEASES[: _index(release) + 1]:
        for change in _CHANGES[name].split():
            api, _, version = change.partition("=")
            versions[ApiKey[api]] = int(version)
    return versions


def features(release: str) -> Mapping[str, int]:
    """The features of a release, and the level at which a new cluster begins. Raises KeyError for an unknown one."""
    _index(release)
    return _FEATURES.get(release, {})


def _index(release: str) -> int:
    try:
        return RELEASES.index(release)
    except ValueError:
        raise KeyError(release) from None

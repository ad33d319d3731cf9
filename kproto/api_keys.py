"""The API keys of Kafka 4.4 with their valid and flexible versions, known without loading any message module."""

from __future__ import annotations

from enum import IntEnum

from ottla.kproto.versions import VersionRange


class ApiKey(IntEnum):
    """An API key: its number, the versions of it that Kafka 4.4 serves, and those which are flexible (KIP-482).

    Keys 4 to 7 and the versions below these minimums were removed by Kafka 4.0 (KIP-896). A version that Kafka
    declares but has not released (InitProducerId 6) is not valid here.
    """

    valid_versions: VersionRange
    flexible_versions: VersionRange

    def __new__(cls, number: int, valid: str = "none", flexible: str = "none") -> ApiKey:
        key = int.__new__(cls, number)
        key._value_ = number
        key.valid_versions = VersionRange.parse(valid)
        key.flexible_versions = VersionRange.parse(flexible)
        return key

    @property
    def kafka_name(self) -> str:
        """The name in Kafka's documentation: `OffsetCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    def is_valid(self, version: int) -> bool:
        return self.valid_versions.includes(version)

    def is_flexible(self, version: int) -> bool:
        return self.flexible_versions.includes(version)

    def response_header_version(self, version: int) -> int:
        """1 when the body is flexible, else 0; always 0 for ApiVersions, whose client may not know (KIP-511)."""
        return 1 if self is not ApiKey.API_VERSIONS and self.flexible_versions.includes(version) else 0

    PRODUCE = 0, "3-13", "9+"
    FETCH = 1, "4-18", "12+"
    LIST_OFFSETS = 2, "1-11", "6+"
    METADATA = 3, "0-13", "9+"
    OFFSET_COMMIT = 8, "2-10", "8+"
    OFFSET_FETCH = 9, "1-10", "6+"
    FIND_COORDINATOR = 10, "0-6", "3+"
    JOIN_GROUP = 11, "0-9", "6+"
    HEARTBEAT = 12, "0-4", "4+"
    LEAVE_GROUP = 13, "0-5", "4+"
    SYNC_GROUP = 14, "0-5", "4+"
    DESCRIBE_GROUPS = 15, "0-6", "5+"
    LIST_GROUPS = 16, "0-5", "3+"
    SASL_HANDSHAKE = 17, "0-1", "none"
    API_VERSIONS = 18, "0-5", "3+"
    CREATE_TOPICS = 19, "2-7", "5+"
    DELETE_TOPICS = 20, "1-6", "4+"
    DELETE_RECORDS = 21, "0-2", "2+"
    INIT_PRODUCER_ID = 22, "0-5", "2+"
    OFFSET_FOR_LEADER_EPOCH = 23, "2-4", "4+"
    ADD_PARTITIONS_TO_TXN = 24, "0-5", "3+"
    ADD_OFFSETS_TO_TXN = 25, "0-4", "3+"
    END_TXN = 26, "0-5", "3+"
    WRITE_TXN_MARKERS = 27, "1-2", "1+"
    TXN_OFFSET_COMMIT = 28, "0-6", "3+"
    DESCRIBE_ACLS = 29, "1-3", "2+"
    CREATE_ACLS = 30, "1-3", "2+"
    DELETE_ACLS = 31, "1-3", "2+"
    DESCRIBE_CONFIGS = 32, "1-4", "4+"
    ALTER_CONFIGS = 33, "0-2", "2+"
    ALTER_REPLICA_LOG_DIRS = 34, "1-2", "2+"
    DESCRIBE_LOG_DIRS = 35, "1-5", "2+"
    SASL_AUTHENTICATE = 36, "0-2", "2+"
    CREATE_PARTITIONS = 37, "0-3", "2+"
    CREATE_DELEGATION_TOKEN = 38, "1-3", "2+"
    RENEW_DELEGATION_TOKEN = 39, "1-2", "2+"
    EXPIRE_DELEGATION_TOKEN = 40, "1-2", "2+"
    DESCRIBE_DELEGATION_TOKEN = 41, "1-3", "2+"
    DELETE_GROUPS = 42, "0-3", "2+"
    ELECT_LEADERS = 43, "0-2", "2+"
    INCREMENTAL_ALTER_CONFIGS = 44, "0-1", "1+"
    ALTER_PARTITION_REASSIGNMENTS = 45, "0-1", "0+"
    LIST_PARTITION_REASSIGNMENTS = 46, "0", "0+"
    OFFSET_DELETE = 47, "0", "none"
    DESCRIBE_CLIENT_QUOTAS = 48, "0-1", "1+"
    ALTER_CLIENT_QUOTAS = 49, "0-1", "1+"
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "0", "0+"
    ALTER_USER_SCRAM_CREDENTIALS = 51, "0", "0+"
    VOTE = 52, "0-2", "0+"
    BEGIN_QUORUM_EPOCH = 53, "0-1", "1+"
    END_QUORUM_EPOCH = 54, "0-1", "1+"
    DESCRIBE_QUORUM = 55, "0-2", "0+"
    ALTER_PARTITION = 56, "2-3", "0+"
    UPDATE_FEATURES = 57, "0-2", "0+"
    ENVELOPE = 58, "0", "0+"
    FETCH_SNAPSHOT = 59, "0-1", "0+"
    DESCRIBE_CLUSTER = 60, "0-2", "0+"
    DESCRIBE_PRODUCERS = 61, "0", "0+"
    BROKER_REGISTRATION = 62, "0-4", "0+"
    BROKER_HEARTBEAT = 63, "0-2", "0+"
    UNREGISTER_BROKER = 64, "0", "0+"
    DESCRIBE_TRANSACTIONS = 65, "0", "0+"
    LIST_TRANSACTIONS = 66, "0-2", "0+"
    ALLOCATE_PRODUCER_IDS = 67, "0", "0+"
    CONSUMER_GROUP_HEARTBEAT = 68, "0-1", "0+"
    CONSUMER_GROUP_DESCRIBE = 69, "0-1", "0+"
    CONTROLLER_REGISTRATION = 70, "0", "0+"
    GET_TELEMETRY_SUBSCRIPTIONS = 71, "0", "0+"
    PUSH_TELEMETRY = 72, "0", "0+"
    ASSIGN_REPLICAS_TO_DIRS = 73, "0", "0+"
    LIST_CONFIG_RESOURCES = 74, "0-1", "0+"
    DESCRIBE_TOPIC_PARTITIONS = 75, "0", "0+"
    SHARE_GROUP_HEARTBEAT = 76, "1", "0+"
    SHARE_GROUP_DESCRIBE = 77, "1", "0+"
    SHARE_FETCH = 78, "1-2", "0+"
    SHARE_ACKNOWLEDGE = 79, "1-2", "0+"
    ADD_RAFT_VOTER = 80, "0-1", "0+"
    REMOVE_RAFT_VOTER = 81, "0", "0+"
    UPDATE_RAFT_VOTER = 82, "0", "0+"
    INITIALIZE_SHARE_GROUP_STATE = 83, "0", "0+"
    READ_SHARE_GROUP_STATE = 84, "0", "0+"
    WRITE_SHARE_GROUP_STATE = 85, "0-1", "0+"
    DELETE_SHARE_GROUP_STATE = 86, "0", "0+"
    READ_SHARE_GROUP_STATE_SUMMARY = 87, "0-1", "0+"
    STREAMS_GROUP_HEARTBEAT = 88, "0-1", "0+"
    STREAMS_GROUP_DESCRIBE = 89, "0-1", "0+"
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, "0-1", "0+"
    ALTER_SHARE_GROUP_OFFSETS = 91, "0", "0+"
    DELETE_SHARE_GROUP_OFFSETS = 92, "0", "0+"
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93, "0", "0+"
    UNREGISTER_CONTROLLER = 94, "0", "0+"


def valid_versions(api_key: int) -> VersionRange | None:
    """The valid versions of an API key as it came from the wire; None for a key that Kafka 4.4 does not have."""
    try:
        return ApiKey(api_key).valid_versions
    except ValueError:
        return None

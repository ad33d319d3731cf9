"""Kafka's error codes, the exceptions that have one, and those of this package.

`DecodeError` is the peer's fault, `EncodeError` is ours. Nothing else leaves the codecs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final, TypeVar

E = TypeVar("E", bound="ApiError")


class ErrorCode(IntEnum):
    """The error codes of Kafka 4.4, each with whether a client may retry, and a sentence for people."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The error of a code that another broker sent; UNKNOWN_SERVER_ERROR for one that is newer than this release.

        So does org.apache.kafka.common.protocol.Errors.forCode.
        """
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN_SERVER_ERROR

    @classmethod
    def name_of(cls, code: int) -> str:
        """The name of a code that another broker sent, for people; `error 999` if it is newer than this release."""
        return cls(code).name if code in cls._value2member_map_ else f"error {code}"

    UNKNOWN_SERVER_ERROR = -1, False, "The broker failed in a way it did not foresee."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies before the log start or beyond the log end."
    CORRUPT_MESSAGE = 2, True, "A record batch is damaged: its checksum, size or content does not hold."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "There is no such topic or partition here."
    INVALID_FETCH_SIZE = 4, False, "The fetch size makes no sense."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead the partition, or holds no replica of it."
    REQUEST_TIMED_OUT = 7, True, "The request was not done within its time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica asked for is not there."
    MESSAGE_TOO_LARGE = 10, False, "A record batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, False, "Another controller has taken over since."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata beside a committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection ended before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, True, "Another broker coordinates this group or transaction."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name, or the operation on it, is not allowed."
    RECORD_LIST_TOO_LARGE = 18, False, "A record batch does not fit in one log segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Too few replicas are in sync; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Too few replicas are in sync, but the records were written."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, False, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with the group."
    INVALID_GROUP_ID = 24, False, "The group id is not allowed."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside what the broker permits."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offset is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The principal may not do this to the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The principal may not do this to the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The principal may not do this to the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is outside what the topic permits."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not enabled."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not serve this version of the API."
    TOPIC_ALREADY_EXISTS = 36, False, "There is a topic of this name already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not consistent."
    INVALID_CONFIG = 40, False, "A configuration value is not allowed."
    NOT_CONTROLLER = 41, True, "Another broker is the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The stored record format does not permit this."
    POLICY_VIOLATION = 44, False, "A policy of the cluster forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number leaves a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was seen before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the one on record."
    INVALID_TXN_STATE = 48, False, "The transaction's state does not permit this step."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The transactional id belongs to another producer id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above the broker's limit."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on this transaction is still under way."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The markers come from a coordinator that was replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "The principal may not use the transactional id."
    SECURITY_DISABLED = 54, False, "The cluster runs without an authorizer."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk of the partition's log failed."
    LOG_DIR_NOT_FOUND = 57, False, "There is no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, False, "Nothing is known of this producer id; its records may have expired."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being moved already."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal neither owns nor may renew the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "A token cannot be asked for over this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "The principal may not do this to the token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session is gone: start a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session is at another epoch."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the name this request came through."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, True, "The client's leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The client's leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "This version of the request cannot carry that compression."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since then."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not yet know its high watermark for certain."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id given in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred replica cannot lead now."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica may lead the partition now."
    ELECTION_NOT_NEEDED = 84, True, "The partition is led as it should be."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic, so its offsets must stay."
    INVALID_RECORD = 87, False, "A record was refused by the broker's checks."
    UNSTABLE_OFFSET_COMMIT = 88, True, "A transaction that commits this offset is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up: try later."
    PRODUCER_FENCED = 90, False, "A newer producer uses this transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential is not good enough."
    INCONSISTENT_VOTER_SET = 94, False, "The sender or the receiver is not one of the voters."
    INVALID_UPDATE_VERSION = 95, False, "The feature level to update to is not allowed."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal of a forwarded request cannot be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "There is no topic of this id here."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "The broker id is taken."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log belongs to a topic of another id."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "A replica proposed as in sync may not be."
    NEW_LEADER_ELECTED = 108, False, "The change was made, and it changed the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is to be found in tiered storage only."
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is fenced: give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still holds this instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not know this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old: learn the new one by a heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is unknown or out of date."
    TELEMETRY_TOO_LARGE = 118, False, "The pushed telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, False, "The registration of the broker is not acceptable."
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed; abort it and go on."
    INVALID_RECORD_STATE = 121, False, "The record is not in a state that can be acknowledged so."
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session is gone: start a new one."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session is at another epoch."
    FENCED_STATE_EPOCH = 124, False, "The share group's state is at another epoch."
    INVALID_VOTER_KEY = 125, False, "The voter key is not the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is in the voter set already."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the voter set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression cannot be compiled."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's view is too old: start again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker holds as many share sessions as it may."
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted; the message says why."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        False,
        "The topology description was not taken; the message says why.",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller of this id is registered."


COORDINATOR_NOT_READY: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""The coordinator of a group or a transaction is elsewhere, or soon will be: it is asked for once more."""


class ApiError(Exception):
    """What a client is answered with an error code. Kafka's counterpart is ApiException."""

    #: The code of the class and of those subclasses that have none of their own.
    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


def errors_by_code(base: type[E]) -> dict[ErrorCode, type[E]]:
    """The subclasses that have a code of their own, by that code: what another broker's answer means here. Of several
    with one code, the one that was declared first.
    """
    found: dict[ErrorCode, type[E]] = {}
    for cls in base.__subclasses__():
        if "code" in vars(cls):
            found.setdefault(cls.code, cls)
        for code, error in errors_by_code(cls).items():
            found.setdefault(code, error)
    return found


class ProtocolError(ApiError):
    """Base of every error that this package raises."""


class DecodeError(ProtocolError):
    """The bytes are not what the schema says: truncated, over-long, or holding a value that is not allowed."""

    code = ErrorCode.INVALID_REQUEST


class EncodeError(ProtocolError):
    """The message cannot be written in that version: a value is out of range, null, or unknown to the version."""


class UnsupportedApiError(DecodeError):
    """A request whose API key or version is not known here, with what is needed to answer it all the same.

    Its header was read up to the correlation id, which has the same place in every version; no more can be read.
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"unsupported API key {api_key} version {api_version}")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class FrameError(ProtocolError):
    """The length prefix of a frame is negative or beyond the limit; the stream cannot be read further."""

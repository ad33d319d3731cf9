"""Errors of the controller."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.metastore.errors import MetadataError


class TopicNotAuthorizedError(MetadataError):
    """The principal may not do this to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    #: The name of a topic that was meant by its id, if the principal may know it.
    topic: str | None = None


class InvalidTopicError(MetadataError):
    """The topic's name breaks the rules or collides with an existing one."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicAlreadyExistsError(MetadataError):
    """A topic of this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class UnknownTopicError(MetadataError):
    """No topic has this name."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicIdError(MetadataError):
    """No topic has this id (any more)."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InvalidPartitionsError(MetadataError):
    """The number of partitions is out of range."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(MetadataError):
    """More replicas than brokers, or none."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(MetadataError):
    """A manual replica assignment is inconsistent or names unknown brokers."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigError(MetadataError):
    """A config's name or value is wrong for its resource."""

    code = ErrorCode.INVALID_CONFIG


class InvalidRequestError(MetadataError):
    """The request contradicts itself (duplicate entries, both a name and an id, …)."""

    code = ErrorCode.INVALID_REQUEST


class InvalidPrincipalTypeError(MetadataError):
    """Principals of this type cannot do this."""

    code = ErrorCode.INVALID_PRINCIPAL_TYPE


class DelegationTokensDisabledError(MetadataError):
    """There are no delegation tokens without `delegation.token.secret.key`."""

    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenRequestNotAllowedError(MetadataError):
    """Requests about delegation tokens are not allowed over a connection of this kind."""

    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenAuthorizationError(MetadataError):
    """The principal may not create delegation tokens for this owner."""

    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenNotFoundError(MetadataError):
    """No delegation token has this secret."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenExpiredError(MetadataError):
    """The delegation token has expired and is not removed yet."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class DelegationTokenOwnerMismatchError(MetadataError):
    """The principal neither owns the delegation token nor may renew it."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class TopicDeletionDisabledError(MetadataError):
    """`delete.topic.enable` is false."""

    code = ErrorCode.TOPIC_DELETION_DISABLED


class InvalidUpdateVersionError(MetadataError):
    """A feature cannot be set to this level."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class UnsupportedFeatureLevelError(MetadataError):
    """The cluster has not agreed on the level of the feature that this needs."""

    code = ErrorCode.UNSUPPORTED_VERSION


class ThrottlingQuotaExceededError(MetadataError):
    """The client has changed more of the metadata than its quota allows for now."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class DuplicateResourceError(MetadataError):
    """The request names the same thing twice."""

    code = ErrorCode.DUPLICATE_RESOURCE


class ResourceNotFoundError(MetadataError):
    """The request names something that does not exist."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class UnacceptableCredentialError(MetadataError):
    """A credential that would not be safe, or belongs to nobody."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class UnsupportedSaslMechanismError(MetadataError):
    """No such mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class UnsupportedEntityTypeError(MetadataError):
    """Quotas are kept for users, client ids and addresses only."""

    code = ErrorCode.UNSUPPORTED_VERSION


class NoReassignmentInProgressError(MetadataError):
    """There is no reassignment to cancel for this partition."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class ElectionNotNeededError(MetadataError):
    """The preferred replica already leads."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class MoveRefusedError(MetadataError):
    """The metadata cannot be moved from one store to the other as things are."""


class DuplicateBrokerIdError(MetadataError):
    """Another node is alive under the same id."""


class BrokerIdNotRegisteredError(MetadataError):
    """No broker of this id is registered."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class ControllerIdNotRegisteredError(MetadataError):
    """No controller of this id is registered."""

    code = ErrorCode.CONTROLLER_ID_NOT_REGISTERED


class PreferredLeaderNotAvailableError(MetadataError):
    """The replica that should lead is not alive or not in sync."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailableError(MetadataError):
    """No replica that may lead is alive."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class NotPartitionLeaderError(MetadataError):
    """The node that wants to change the in-sync set no longer leads, or leads in another epoch."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER

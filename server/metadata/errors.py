"""What the metadata store and the controller raise; `server/apis/errors.py` gives them their wire codes."""

from __future__ import annotations


class MetadataError(Exception):
    """Base of everything that the metadata layer raises on purpose. The text is fit for a client."""


class StoreUnavailableError(MetadataError):
    """The metadata store could not be reached or refused to write; nothing is known to have changed."""


class MetadataDamagedError(StoreUnavailableError):
    """The metadata store returned something that was never written to it."""


class ConflictError(MetadataError):
    """Somebody else changed the same keys in between, repeatedly."""


class WatchLaggedError(MetadataError):
    """A watcher fell behind its bound or its revision is gone: list again, then watch from there."""


class LeaseExpiredError(MetadataError):
    """The lease is unknown or has ended; its keys are gone."""


class TopicNotAuthorizedError(MetadataError):
    """The principal may not do this to the topic."""

    #: The name of a topic that was meant by its id, if the principal may know it.
    topic: str | None = None


class InvalidTopicError(MetadataError):
    """The topic's name breaks the rules or collides with an existing one."""


class TopicAlreadyExistsError(MetadataError):
    """A topic of this name exists."""


class UnknownTopicError(MetadataError):
    """No topic has this name."""


class UnknownTopicIdError(MetadataError):
    """No topic has this id (any more)."""


class InvalidPartitionsError(MetadataError):
    """The number of partitions is out of range."""


class InvalidReplicationFactorError(MetadataError):
    """More replicas than brokers, or none."""


class InvalidReplicaAssignmentError(MetadataError):
    """A manual replica assignment is inconsistent or names unknown brokers."""


class InvalidConfigError(MetadataError):
    """A config's name or value is wrong for its resource."""


class InvalidRequestError(MetadataError):
    """The request contradicts itself (duplicate entries, both a name and an id, …)."""


class InvalidPrincipalTypeError(MetadataError):
    """Principals of this type cannot do this."""


class DelegationTokensDisabledError(MetadataError):
    """There are no delegation tokens without `delegation.token.secret.key`."""


class DelegationTokenRequestNotAllowedError(MetadataError):
    """Requests about delegation tokens are not allowed over a connection of this kind."""


class DelegationTokenAuthorizationError(MetadataError):
    """The principal may not create delegation tokens for this owner."""


class DelegationTokenNotFoundError(MetadataError):
    """No delegation token has this secret."""


class DelegationTokenExpiredError(MetadataError):
    """The delegation token has expired and is not removed yet."""


class DelegationTokenOwnerMismatchError(MetadataError):
    """The principal neither owns the delegation token nor may renew it."""


class PolicyViolationError(MetadataError):
    """A limit of this cluster forbids it."""


class TopicDeletionDisabledError(MetadataError):
    """`delete.topic.enable` is false."""


class InvalidUpdateVersionError(MetadataError):
    """A feature cannot be set to this level."""


class UnsupportedFeatureLevelError(MetadataError):
    """The cluster has not agreed on the level of the feature that this needs."""


class ThrottlingQuotaExceededError(MetadataError):
    """The client has changed more of the metadata than its quota allows for now."""


class DuplicateResourceError(MetadataError):
    """The request names the same thing twice."""


class ResourceNotFoundError(MetadataError):
    """The request names something that does not exist."""


class UnacceptableCredentialError(MetadataError):
    """A credential that would not be safe, or belongs to nobody."""


class UnsupportedSaslMechanismError(MetadataError):
    """No such mechanism."""


class UnsupportedEntityTypeError(MetadataError):
    """Quotas are kept for users, client ids and addresses only."""


class NoReassignmentInProgressError(MetadataError):
    """There is no reassignment to cancel for this partition."""


class ElectionNotNeededError(MetadataError):
    """The preferred replica already leads."""


class MoveRefusedError(MetadataError):
    """The metadata cannot be moved from one store to the other as things are."""


class DuplicateBrokerIdError(MetadataError):
    """Another node is alive under the same id."""


class BrokerIdNotRegisteredError(MetadataError):
    """No broker of this id is registered."""


class ControllerIdNotRegisteredError(MetadataError):
    """No controller of this id is registered."""


class PreferredLeaderNotAvailableError(MetadataError):
    """The replica that should lead is not alive or not in sync."""


class EligibleLeadersNotAvailableError(MetadataError):
    """No replica that may lead is alive."""


class NotPartitionLeaderError(MetadataError):
    """The node that wants to change the in-sync set no longer leads, or leads in another epoch."""

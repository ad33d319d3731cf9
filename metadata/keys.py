"""How metadata is written in the store: the keys, and their values in JSON.

    /cluster/id                        the cluster id
    /features/<name>                   a finalized level
    /topics/<name>                     id, replicas of each partition, configs
    /partitions/<topic id>/<number>    a partition's state, once it is no longer the initial one
    /configs/<type>/<name>             configs of a broker, a group or a client metrics subscription
    /quotas/<entity>                   a client quota
    /scram/<mechanism>/<user>          a user's SCRAM credential
    /delegation-tokens/<id>            a delegation token, without its secret
    /acls/<entry>                      one entry of the access control lists
    /brokers/<id>                      a registered broker: where it is reached, its rack, how it last stopped
    /alive/<id>                        on the lease of the broker's session: while it is there the broker is not fenced
    /controller                        on the lease of a broker's session: that broker is the controller
    /taken-ids/<id>                    an id that was given to a node that asked for one; it is not given again
    /starts/<id>                       how often a broker has started after its first time
    /restoration                       the restoration of a backup that this metadata goes back to
    /remote-generation                 how often the cluster was restored from its objects, without which it is 0
    /moved                             where the metadata has gone, or comes from: no node starts
    /producer-ids                      the first producer id that was given to nobody

A topic of 10,000 partitions is one key, and only partitions whose state ever changed have one of their own. Each start
of a broker begins a new epoch of all that it leads, and that is one key as well: an epoch is stored together with how
often its leader had started by then (`starts`); for a partition without a key that is 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from ottla.metadata.image import (
    BrokerImage,
    ConfigResource,
    Endpoint,
    PartitionState,
    QuotaEntity,
    ResourceType,
    Session,
    TopicImage,
)

if TYPE_CHECKING:
    from ottla.metadata.acls import Acl
    from ottla.metadata.delegation_tokens import DelegationToken
    from ottla.metadata.scram_changes import ScramCredential, ScramKey

CLUSTER: Final = "/cluster/"
CLUSTER_ID: Final = "/cluster/id"
FEATURES: Final = "/features/"
TOPICS: Final = "/topics/"
PARTITIONS: Final = "/partitions/"
CONFIGS: Final = "/configs/"
QUOTAS: Final = "/quotas/"
SCRAM: Final = "/scram/"
DELEGATION_TOKENS: Final = "/delegation-tokens/"
ACLS: Final = "/acls/"
BROKERS: Final = "/brokers/"
ALIVE: Final = "/alive/"
CONTROLLER: Final = "/controller"
TAKEN_IDS: Final = "/taken-ids/"
STARTS: Final = "/starts/"
MOVED: Final = "/moved"
RESTORATION: Final = "/restoration"
PRODUCER_IDS: Final = "/producer-ids"
REMOTE_GENERATION: Final = "/remote-generation"


def topic(name: str) -> str:
    return TOPICS + name


def partitions_of(topic_id: UUID) -> str:
    return f"{PARTITIONS}{topic_id.hex}/"


def partition(topic_id: UUID, number: int) -> str:
    return partitions_of(topic_id) + str(number)


def parse_partition(key: str) -> tuple[UUID, int]:
    topic_id, _, number = key.removeprefix(PARTITIONS).partition("/")
    return UUID(topic_id), int(number)


def configs(resource: ConfigResource) -> str:
    return f"{CONFIGS}{resource.type.name.lower()}/{resource.name}"


def parse_configs(key: str) -> ConfigResource:
    type_name, _, name = key.removeprefix(CONFIGS).partition("/")
    return ConfigResource(ResourceType[type_name.upper()], name)


def feature(name: str) -> str:
    return FEATURES + name


def broker(node_id: int) -> str:
    return f"{BROKERS}{node_id}"


def alive(node_id: int) -> str:
    return f"{ALIVE}{node_id}"


def taken_id(node_id: int) -> str:
    return f"{TAKEN_IDS}{node_id}"


def starts(node_id: int) -> str:
    return f"{STARTS}{node_id}"


def quota(entity: QuotaEntity) -> str:
    return QUOTAS + json.dumps(entity, separators=(",", ":"), ensure_ascii=False)


def parse_quota(key: str) -> QuotaEntity:
    return tuple((type_, name) for type_, name in json.loads(key.removeprefix(QUOTAS)))


def scram(key: ScramKey) -> str:
    user, mechanism = key
    return f"{SCRAM}{int(mechanism)}/{user}"


def parse_scram(key: str) -> ScramKey:
    from ottla.metadata.scram_changes import ScramMechanism

    mechanism, _, user = key.removeprefix(SCRAM).partition("/")
    return user, ScramMechanism(int(mechanism))


def delegation_token(token_id: str) -> str:
    return DELEGATION_TOKENS + token_id


def acl(entry: Acl) -> str:
    return ACLS + json.dumps(entry, separators=(",", ":"), ensure_ascii=False)


def parse_acl(key: str) -> Acl:
    from ottla.metadata.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource

    resource, name, pattern, principal, host, operation, permission = json.loads(key.removeprefix(ACLS))
    return Acl(
        AclResource(resource),
        name,
        AclPattern(pattern),
        principal,
        host,
        AclOperation(operation),
        AclPermission(permission),
    )


def encode_scram(credential: ScramCredential) -> bytes:
    hexed = {name: value.hex() if isinstance(value, bytes) else value for name, value in credential._asdict().items()}
    return encode(hexed)


def decode_scram(value: bytes) -> ScramCredential:
    from ottla.metadata.scram_changes import ScramCredential

    document = decode(value)
    salt, stored_key, server_key = (bytes.fromhex(document[name]) for name in ("salt", "stored_key", "server_key"))
    return ScramCredential(salt, stored_key, server_key, document["iterations"])


def encode_delegation_token(token: DelegationToken) -> bytes:
    return encode({name: value for name, value in token._asdict().items() if name != "token_id"})


def decode_delegation_token(key: str, value: bytes) -> DelegationToken:
    from ottla.metadata.delegation_tokens import DelegationToken, TokenPrincipal

    document = decode(value)
    return DelegationToken(
        key.removeprefix(DELEGATION_TOKENS),
        TokenPrincipal(*document["owner"]),
        TokenPrincipal(*document["requester"]),
        tuple(TokenPrincipal(*renewer) for renewer in document["renewers"]),
        document["issue_timestamp_ms"],
        document["expiry_timestamp_ms"],
        document["max_timestamp_ms"],
    )


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode(value: bytes) -> Any:
    return json.loads(value.decode("utf-8", "surrogatepass"))


def encode_topic(topic_id: UUID, replicas: Sequence[Sequence[int]], own_configs: Mapping[str, str]) -> bytes:
    return encode({"id": topic_id.hex, "replicas": replicas, "configs": dict(own_configs)})


def decode_topic(value: bytes) -> tuple[UUID, list[tuple[int, ...]], dict[str, str]]:
    document = decode(value)
    return UUID(document["id"]), [tuple(replicas) for replicas in document["replicas"]], document["configs"]


class DescribedTopic(NamedTuple):
    """A topic as it is described beside its records.

    `epochs` are the partition epochs as of which `replicas` was true, and `revision` that of the topic's own key, by
    which descriptions of several nodes are compared. A release that did not write them left -1 everywhere.
    """

    name: str
    topic_id: UUID
    replicas: list[tuple[int, ...]]
    configs: dict[str, str]
    epochs: list[int]
    revision: int


def encode_described_topic(topic: TopicImage) -> bytes:
    """A topic with its name, as it is kept beside its records."""
    return encode(
        {
            "name": topic.name,
            "id": topic.topic_id.hex,
            "replicas": [state.replicas for state in topic.partitions],
            "configs": dict(topic.configs),
            "epochs": [state.partition_epoch for state in topic.partitions],
            "revision": topic.revision,
        }
    )


def decode_described_topic(content: bytes) -> DescribedTopic:
    """ValueError, KeyError or TypeError if it is no description."""
    document = decode(content)
    topic_id, replicas, own_configs = decode_topic(content)
    epochs = [int(epoch) for epoch in document.get("epochs", ())]
    if not all(replicas):
        raise ValueError("a partition without replicas")
    if len(epochs) != len(replicas):
        epochs = [-1] * len(replicas)
    return DescribedTopic(
        str(document["name"]), topic_id, replicas, dict(own_configs), epochs, int(document.get("revision", -1))
    )


#: Fields of a partition's state that are left out when empty: a release that does not know them can then read it.
_OFTEN_EMPTY: Final = frozenset({"elr", "last_known_elr"})


def encode_partition(state: PartitionState, starts: Mapping[int, int]) -> bytes:
    fields = {name: value for name, value in state._asdict().items() if value or name not in _OFTEN_EMPTY}
    return encode({**fields, "starts": starts.get(state.leader, 0)})


def decode_partition(value: bytes, starts: Mapping[int, int]) -> PartitionState:
    """The state in its present epochs, given how often each broker has started."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in decode(value).items()}
    counted = fields.pop("starts", 0)
    state = PartitionState(**fields)
    return state.after_starts(starts.get(state.leader, 0) - counted)


def encode_broker(image: BrokerImage) -> bytes:
    endpoints = [[e.listener, e.host, e.port, e.security_protocol] for e in image.endpoints]
    return encode(
        {
            "endpoints": endpoints,
            "rack": image.rack,
            "incarnation": image.incarnation,
            "directory": image.directory_id,
            "was_clean": image.was_clean,
        }
    )


def decode_broker(key: str, value: bytes, epoch: int) -> BrokerImage:
    """A broker as it registered; another key says whether it is fenced."""
    document = decode(value)
    return BrokerImage(
        node_id=int(key.removeprefix(BROKERS)),
        endpoints=tuple(Endpoint(*endpoint) for endpoint in document["endpoints"]),
        rack=document["rack"],
        epoch=epoch,
        incarnation=document.get("incarnation", ""),
        directory_id=document.get("directory", ""),
        was_clean=document.get("was_clean", True),
    )


def encode_session(image: BrokerImage) -> bytes:
    return encode({"incarnation": image.incarnation, "directory": image.directory_id})


def decode_session(value: bytes) -> Session:
    document = decode(value)
    return Session(document["incarnation"], document["directory"])

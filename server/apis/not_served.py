"""The API keys of Kafka 4.4 that a broker does not serve, and why: the reason is said where one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.kproto.api_keys import ApiKey

_QUORUM: Final = "among the voters of a KRaft quorum; the metadata store takes its place"
_CONTROLLER: Final = "from a broker to the KRaft controller; here a broker changes the metadata store itself"


#: Kafka's brokers do not serve these either: in KRaft they belong to the controllers' listener.
NOT_SERVED: Final[Mapping[ApiKey, str]] = {
    ApiKey.VOTE: _QUORUM,
    ApiKey.BEGIN_QUORUM_EPOCH: _QUORUM,
    ApiKey.END_QUORUM_EPOCH: _QUORUM,
    ApiKey.ALTER_PARTITION: _CONTROLLER,
    ApiKey.ENVELOPE: "a client's request that a broker hands to the KRaft controller; no request is handed on here",
    ApiKey.FETCH_SNAPSHOT: _QUORUM,
    ApiKey.BROKER_REGISTRATION: _CONTROLLER,
    ApiKey.BROKER_HEARTBEAT: _CONTROLLER,
    ApiKey.ALLOCATE_PRODUCER_IDS: _CONTROLLER,
    ApiKey.CONTROLLER_REGISTRATION: _QUORUM,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _CONTROLLER,
    ApiKey.UPDATE_RAFT_VOTER: _QUORUM,
}

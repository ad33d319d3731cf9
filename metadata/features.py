"""The features that a cluster of this version can agree on (KIP-584), with Kafka 4.4's names and levels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

#: From these levels of metadata.version on hosts of ACLs may be networks (4.4-IV1), and controllers be unregistered
#: (4.4-IV2).
NETWORKS_IN_ACLS: Final = 32
UNREGISTERED_CONTROLLERS: Final = 33
#: Level of share.version from which on share groups have dead-letter queues (KIP-1191).
DEAD_LETTER_QUEUES: Final = 2

#: Feature → (least, greatest) level. Levels of metadata.version are those of Kafka 3.3 (7) to 4.4 (33).
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
        GROUP_VERSION: (0, 1),
        METADATA_VERSION: (7, 33),
        SHARE_VERSION: (0, 2),
        STREAMS_VERSION: (0, 1),
        TRANSACTION_VERSION: (0, 2),
    }
)

#: What a new cluster begins with.
DEFAULT_FEATURES: Final[Mapping[str, int]] = MappingProxyType(
    {name: greatest for name, (_, greatest) in SUPPORTED_FEATURES.items()}
)

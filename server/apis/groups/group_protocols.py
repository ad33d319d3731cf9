"""Which group protocols are served: the cluster's features say it, and `group.coordinator.rebalance.protocols`.

As in Kafka (KafkaApis.isConsumerGroupProtocolEnabled and its like), classic groups are always served, and the setting
does not concern share groups.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ottla.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext


class GroupProtocol(Enum):
    """A protocol with one heartbeat. The value is its name in the setting, or None where the setting is not asked, and
    its feature.
    """

    CONSUMER = ("consumer", GROUP_VERSION)
    SHARE = (None, SHARE_VERSION)
    STREAMS = ("streams", STREAMS_VERSION)

    def is_enabled(self, context: RequestContext) -> bool:
        """Whether requests of this protocol are served; if not, they are answered UNSUPPORTED_VERSION."""
        name, feature = self.value
        offered = context.broker.config.group_coordinator_rebalance_protocols
        return (name is None or name in offered) and context.broker.metadata.features.get(feature, 0) > 0

"""What the listeners of a node ask of those who connect, kept in step with its settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.server.metadata.image import ResourceType
from ottla.server.network.endpoints import listener_protocols
from ottla.server.security.credentials import Credentials
from ottla.server.security.offers import sasl_offer
from ottla.server.settings.config import ConfigError

if TYPE_CHECKING:
    from ottla.server.metadata.controller import Controller
    from ottla.server.metadata.image import MetadataDelta
    from ottla.server.network.listener import Listeners
    from ottla.server.security.sasl import SaslOffer
    from ottla.server.settings.config import BrokerConfig

logger = logging.getLogger(__name__)


class Guard:
    """Gives the listeners their mechanisms. Raises ConfigError if the settings do not say who may come in."""

    def __init__(self, config: BrokerConfig, controller: Controller, listeners: Listeners) -> None:
        self._config = config
        self._listeners = listeners
        self._credentials = Credentials(lambda: controller.image.scram_credentials)
        listeners.set_sasl(self._offers())

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow settings that are changed while the node runs; what is wrong changes nothing."""
        if not any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
            return
        try:
            self._listeners.set_sasl(self._offers())
        except ConfigError as error:
            logger.warning("the listeners keep what they ask of clients: %s", error, extra={"error": str(error)})

    def _offers(self) -> dict[str, SaslOffer]:
        return {
            name: sasl_offer(self._config, name, self._credentials)
            for name, protocol in listener_protocols(self._config).items()
            if protocol.startswith("SASL_")
        }

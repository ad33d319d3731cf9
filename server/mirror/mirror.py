"""Whether this cluster mirrors another one, as its settings say: the link is begun, changed and ended with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.metadata.image import ResourceType

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta
    from ottla.server.mirror.link import Link
    from ottla.server.mirror.progress import MirrorProgress
    from ottla.settings.config import BrokerConfig

NewLink = Callable[[], "tuple[Link, MirrorProgress]"]


class Mirror:
    """Owns the link of this node. `apply` is subscribed to the metadata after the replica manager.

    Nothing of the link is loaded before there is one to begin.
    """

    def __init__(self, config: BrokerConfig, new_link: NewLink) -> None:
        self._config = config
        self._new_link = new_link
        self._link: Link | None = None
        #: The progress of the link; None without a link.
        self.progress: MirrorProgress | None = None
        self._reconfigured = trio.Event()

    async def apply(self, delta: MetadataDelta) -> None:
        """Hear of a change of the metadata."""
        if any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
            self._reconfigured.set()
        if self._link is not None and (delta.changed_partitions or delta.reconfigured_topics or delta.deleted_topics):
            self._link.look_again()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._reconfigured = trio.Event()
            settings = self._settings()
            if not self._config.ottla_mirror_bootstrap_servers:
                await self._reconfigured.wait()
                continue
            async with trio.open_nursery() as nursery:
                self._link, self.progress = self._new_link()
                nursery.start_soon(self._link.run)
                while self._settings() == settings:
                    await self._reconfigured.wait()
                    self._reconfigured = trio.Event()
                self._link = self.progress = None
                nursery.cancel_scope.cancel()

    def _settings(self) -> tuple[Any, ...]:
        config = self._config
        return (
            config.ottla_mirror_bootstrap_servers,
            config.ottla_mirror_topics,
            config.ottla_mirror_groups,
            config.ottla_mirror_client_properties,
            config.ottla_mirror_interval_ms,
        )

"""Settings as they are stored, taken into use. What cannot be used is named and left out: it never ends a start.

A broker checks what it is told to store. But an earlier release may have taken what this one does not, another broker
has another file, and two changes at once may not suit each other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.metadata.image import ConfigResource, ResourceType
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.config import GROUP_SETTINGS, TOPIC_SETTINGS
from ottla.settings.declaration import InvalidSettingError
from ottla.settings.dynamic import Unusable, usable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.image import MetadataDelta, MetadataImage
    from ottla.settings.config import BrokerConfig
    from ottla.settings.declaration import Setting

logger = logging.getLogger(__name__)

_ALL_BROKERS = "all"


class StoredSettings:
    """Gives a broker's configuration what is stored, and names once what is stored of any resource and not used."""

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self._config = config
        self._node_id = node_id
        self._logged: set[Unusable] = set()

    async def follow(self, delta: MetadataDelta) -> None:
        """A subscriber of the metadata."""
        if any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
            self._follow_broker(delta.after)
        time_slice = TimeSlice()
        for resource in delta.changed_configs:
            await time_slice.maybe_yield()
            if resource.type is ResourceType.GROUP:
                _log_unusable("group", resource.name, delta.after.resource_configs(resource), GROUP_SETTINGS)
        for topics in (delta.created_topics, delta.reconfigured_topics):
            for topic in topics:
                await time_slice.maybe_yield()
                if topic.configs:
                    _log_unusable("topic", topic.name, topic.configs, TOPIC_SETTINGS)

    def _follow_broker(self, image: MetadataImage) -> None:
        own = image.resource_configs(ConfigResource(ResourceType.BROKER, str(self._node_id)))
        of_all = image.resource_configs(ConfigResource(ResourceType.BROKER, ""))
        used_own, used_of_all, left_out = usable(self._config, self._node_id, own, of_all)
        self._config.set_dynamic(used_own, used_of_all)
        for each in left_out:
            if each not in self._logged:
                _log("broker", each.broker or _ALL_BROKERS, each.name, each.reason)
        self._logged = set(left_out)


def _log_unusable(kind: str, name: str, configs: Mapping[str, str], settings: Mapping[str, Setting]) -> None:
    for key, text in configs.items():
        setting = settings.get(key)
        try:
            if setting is not None:
                setting.parse(text)
        except InvalidSettingError as error:
            _log(kind, name, key, str(error))


def _log(kind: str, name: str, setting: str, reason: str) -> None:
    logger.warning(
        "the setting %s of %s %s is stored and cannot be used, so it counts as not set: %s "
        "(remove it with `ottla config unset %s %s %s`)",
        *(setting, kind, name, reason, kind, name, setting),
        extra={"setting": setting, "kind": kind, "resource": name, "error": reason},
    )

"""What may become of a finalized feature (org.apache.kafka.controller.FeatureControlManager)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from ottla.server.metadata.errors import FeatureUpdateFailedError, InvalidRequestError
from ottla.server.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES


class UpgradeType(IntEnum):
    """How far a level may go; the numbers are those of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A level that is asked for; 0 turns the feature off."""

    name: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


def change_feature(current: Mapping[str, int], update: FeatureUpdate) -> int:
    """The level that the feature gets; raises MetadataError."""
    name, level = update.name, update.level
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None:
        raise FeatureUpdateFailedError(
            f"Invalid update version {level} for feature {name}. The controller does not support the given feature."
        )
    if level < 0:
        raise InvalidRequestError(
            f"Invalid update version {level} for feature {name}. A feature version cannot be less than 0."
        )
    least, greatest = supported
    if not least <= level <= greatest:
        raise FeatureUpdateFailedError(
            f"Invalid update version {level} for feature {name}. This version supports {least}-{greatest}"
        )
    now = current.get(name, 0)
    if level < now and update.upgrade_type is UpgradeType.UPGRADE:
        raise FeatureUpdateFailedError(
            f"Invalid update version {level} for feature {name}. Can't downgrade the version of this feature without "
            "setting the upgrade type to either safe or unsafe downgrade."
        )
    if level < now and name == METADATA_VERSION:
        raise FeatureUpdateFailedError(
            f"Invalid update version {level} for feature {name}. Downgrading the metadata version is not possible."
        )
    if level > now and update.upgrade_type is not UpgradeType.UPGRADE:
        raise FeatureUpdateFailedError(
            f"Invalid update version {level} for feature {name}. Can't downgrade to a newer version."
        )
    return level

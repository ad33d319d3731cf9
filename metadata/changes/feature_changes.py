"""How a finalized feature may change (org.apache.kafka.controller.FeatureControlManager)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from ottla.metadata.errors import InvalidUpdateVersionError
from ottla.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES


class UpgradeType(IntEnum):
    """How far a level may go; the numbers are those of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A level that is asked for; 0 turns the feature off. An upgrade type that is not an `UpgradeType` is refused."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def change_feature(current: Mapping[str, int], update: FeatureUpdate, node_id: int) -> int:
    """The level that the feature gets; raises InvalidUpdateVersionError."""
    name, level = update.name, update.level
    now = current.get(name, 0)
    reason = _refusal(now, update, node_id)
    if reason is not None:
        raise InvalidUpdateVersionError(f"Invalid update version {level} for feature {name}. {reason}")
    if name == METADATA_VERSION and level < now:
        refusal = (
            "Refusing to perform the requested downgrade because it might delete metadata information."
            if update.upgrade_type == UpgradeType.SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
        raise InvalidUpdateVersionError(f"Unsupported metadata.version downgrade from {now} to {level}. {refusal}")
    return level


def _refusal(now: int, update: FeatureUpdate, node_id: int) -> str | None:
    supported = SUPPORTED_FEATURES.get(update.name)
    if update.upgrade_type not in UpgradeType.__members__.values():
        return "The controller does not support the given upgrade type."
    if supported is None:
        return f"Local controller {node_id} does not support this feature."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    least, greatest = supported
    if not least <= update.level <= greatest:
        return f"Local controller {node_id} only supports versions {least}-{greatest}"
    if update.level < now and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level > now and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None

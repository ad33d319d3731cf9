"""Transactions that change configs of resources, quotas of clients, and levels of features.

Kafka's counterparts are ConfigurationControlManager, ClientQuotaControlManager and FeatureControlManager in
org.apache.kafka.controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.metadata import keys
from ottla.metadata.changes.config_changes import (
    ConfigChange,
    change_configs,
    check_broker_name,
    check_configs,
    check_mirroring,
    config_after,
)
from ottla.metadata.changes.feature_changes import FeatureUpdate, change_feature
from ottla.metadata.changes.partition_changes import in_next_epoch
from ottla.metadata.changes.quota_changes import change_quota
from ottla.metadata.changes.tiered_topics import check_end_of_tiering
from ottla.metadata.image import ConfigResource, MetadataImage, QuotaEntity, ResourceType
from ottla.metastore.errors import MetadataError
from ottla.metastore.store import Compare, Delete, Operation, Put
from ottla.runtime.errors import kept
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.mirrored import MIRROR_SETTING

if TYPE_CHECKING:
    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.partition_transactions import PartitionKey
    from ottla.metadata.changes.transactions import Plan, Planner, RevisionOf
    from ottla.settings.config import BrokerConfig


def configs_change(
    asked: Mapping[ConfigResource, Sequence[ConfigChange]],
    node_id: int,
    config: BrokerConfig,
    *,
    replace: bool,
    validate_only: bool,
    can_use: Callable[[BrokerConfig], Awaitable[None]],
) -> Planner[dict[ConfigResource, MetadataError | None]]:
    """See `Controller.alter_configs`. `can_use` raises MetadataError where this broker cannot go on with settings."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[ConfigResource, MetadataError | None]]:
        results: dict[ConfigResource, MetadataError | None] = {}
        compares: list[Compare] = []
        operations: list[Operation] = []
        time_slice = TimeSlice()
        for resource, changes in asked.items():
            await time_slice.maybe_yield()
            try:
                if resource.type is ResourceType.BROKER:
                    check_broker_name(resource.name, node_id)
                current = image.resource_configs(resource)
                kept_ones = {MIRROR_SETTING: current[MIRROR_SETTING]} if MIRROR_SETTING in current else {}
                configs = change_configs(resource, kept_ones if replace else current, changes)
                check_configs(resource, configs, image, config)
                check_mirroring(resource, current, configs)
                check_end_of_tiering(resource, current, configs)
                if resource.type is ResourceType.BROKER:
                    await can_use(config_after(resource, configs, current, config))
            except MetadataError as error:
                results[resource] = kept(error)
                continue
            results[resource] = None
            if configs == current:
                continue
            operation = _put_configs(resource, configs, image)
            compares.append(Compare(operation.key, revision_of(operation.key)))
            operations.append(operation)
        return compares, [] if validate_only else operations, results

    return plan


def epochs_of_mirrors(
    asked: Mapping[ConfigResource, Sequence[ConfigChange]], image: MetadataImage
) -> dict[PartitionKey, PartitionUpdate]:
    """What a mirror got from its source and what is written to it afterwards must be of different epochs: the changes
    to make before `asked`."""
    changing = {
        resource.name
        for resource, changes in asked.items()
        if resource.type is ResourceType.TOPIC and any(change.name == MIRROR_SETTING for change in changes)
    }
    topics = (image.topic(name) for name in changing)
    return {
        (topic.topic_id, index): in_next_epoch
        for topic in topics
        if topic is not None and topic.is_mirrored
        for index in range(len(topic.partitions))
    }


def quotas_change(
    asked: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> Planner[dict[QuotaEntity, MetadataError | None]]:
    """See `Controller.alter_client_quotas`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[QuotaEntity, MetadataError | None]]:
        results: dict[QuotaEntity, MetadataError | None] = {}
        compares: list[Compare] = []
        operations: list[Operation] = []
        time_slice = TimeSlice()
        for entity, changes in asked.items():
            await time_slice.maybe_yield()
            current = image.quotas.get(entity, {})
            try:
                after = change_quota(entity, current, changes)
            except MetadataError as error:
                results[entity] = kept(error)
                continue
            results[entity] = None
            if after != current:
                key = keys.quota(entity)
                compares.append(Compare(key, revision_of(key)))
                operations.append(Put(key, keys.encode(after)) if after else Delete(key))
        return compares, [] if validate_only else operations, results

    return plan


def features_update(updates: Sequence[FeatureUpdate], node_id: int, *, validate_only: bool) -> Planner[None]:
    """See `Controller.update_features`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[None]:
        levels = dict(image.features)
        puts = []
        for update in updates:
            levels[update.name] = change_feature(levels, update, node_id)
            puts.append(Put(keys.feature(update.name), keys.encode(levels[update.name])))
        return [Compare(put.key, revision_of(put.key)) for put in puts], [] if validate_only else puts, None

    return plan


def _put_configs(resource: ConfigResource, configs: Mapping[str, str], image: MetadataImage) -> Put | Delete:
    if resource.type is ResourceType.TOPIC:
        topic = image.topics[resource.name]
        replicas = [state.replicas for state in topic.partitions]
        return Put(keys.topic(topic.name), keys.encode_topic(topic.topic_id, replicas, configs))
    key = keys.configs(resource)
    return Put(key, keys.encode(dict(configs))) if configs else Delete(key)

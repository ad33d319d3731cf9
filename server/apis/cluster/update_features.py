"""UpdateFeatures (57): the finalized levels of features, all or none (KIP-584).

The first update that fails is reported for all of them. Of a feature that is named twice the last update counts.
Version 0's `allow_downgrade` is a safe downgrade.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.changes.feature_changes import FeatureUpdate, UpgradeType
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.UPDATE_FEATURES, on_cluster(AclOperation.ALTER), forwarded=True, changes_metadata=True)


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    version = context.header.api_version
    updates = {it.feature: _update(it, version) async for it in context.work.over(request.feature_updates)}
    try:
        await context.broker.controller.update_features(list(updates.values()), validate_only=request.validate_only)
    except MetadataError as error:
        code, message = outcome(error)
        message = f"The update failed for all features since the following feature had an error: {message}"
        return UpdateFeaturesResponse(error_code=code, error_message=message)
    # As in Kafka, since 4.4.
    results = [UpdatableFeatureResult(feature=it.feature, error_message="") for it in request.feature_updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade_type = asked.upgrade_type
    if version == 0:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)

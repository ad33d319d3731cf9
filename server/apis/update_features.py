"""UpdateFeatures (57): the finalized levels of features, all or none (KIP-584).

Up to version 1 each feature has its own result; from version 2 the first that fails is told for all. Version 0's
`allow_downgrade` is a safe downgrade.
"""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.server.apis.results import duplicates, outcome
from ottla.server.context import RequestContext
from ottla.server.metadata.errors import InvalidRequestError, MetadataError
from ottla.server.metadata.feature_changes import FeatureUpdate, UpgradeType, change_feature


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    version = context.header.api_version
    asked = request.feature_updates
    if duplicates(it.feature for it in asked):
        code, message = outcome(InvalidRequestError("A feature may be named only once."))
        return UpdateFeaturesResponse(error_code=code, error_message=message)
    current = context.broker.metadata.features
    updates = []
    failures: dict[str, MetadataError] = {}
    for it in asked:
        try:
            update = _update(it, version)
            change_feature(current, update)
            updates.append(update)
        except MetadataError as error:
            failures[it.feature] = error
    if failures and version >= 2:
        code, message = outcome(next(iter(failures.values())))
        return UpdateFeaturesResponse(
            error_code=code,
            error_message="The update failed for all features since the following feature had an error: "
            + str(message),
        )
    if not failures:
        await context.broker.controller.update_features(updates, validate_only=request.validate_only)
    results = []
    for it in asked:
        code, message = outcome(failures.get(it.feature))
        if failures and it.feature not in failures:
            code, message = ErrorCode.INVALID_UPDATE_VERSION, "Another feature of the request could not be updated."
        results.append(UpdatableFeatureResult(feature=it.feature, error_code=code, error_message=message))
    return UpdateFeaturesResponse(results=results)


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version == 0:
        type_ = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
        return FeatureUpdate(asked.feature, asked.max_version_level, type_)
    try:
        return FeatureUpdate(asked.feature, asked.max_version_level, UpgradeType(asked.upgrade_type))
    except ValueError:
        raise InvalidRequestError(f"Invalid upgrade type {asked.upgrade_type} for feature {asked.feature}") from None

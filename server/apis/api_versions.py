"""ApiVersions (18): what this broker serves, in which versions, and the cluster's features.

- Only APIs with a handler are listed. Produce is listed from version 0, though served from 3: older librdkafka turns
  compression off otherwise (KAFKA-18659).
- Versions 3 and later name the client's software; a name or version that does not match is INVALID_REQUEST (KIP-511).
- Before version 4 a feature's least version 0 must not be shown: clients of that time reject it (KAFKA-17011).
- The response header is version 0 in every version, and an unknown version is answered as version 0 with
  UNSUPPORTED_VERSION (`ottla.server.network.dispatch`).
"""

import re
from typing import Final

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.server.apis.context import RequestContext
from ottla.server.metadata.features import SUPPORTED_FEATURES

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    version = context.header.api_version
    if version >= 3 and not _names_software(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if version >= 3:
        context.connection.software = (request.client_software_name, request.client_software_version)
    if context.connection.sasl is not None:
        context.connection.sasl.versions_told()
    broker = context.broker
    image = broker.metadata
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min_version, max_version=api.max_version)
            for api in broker.apis
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if version >= 4 or lowest > 0
        ],
        finalized_features_epoch=image.revision,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
            if level > 0
        ],
    )


def _names_software(request: ApiVersionsRequest) -> bool:
    return all(
        _SOFTWARE_NAME.fullmatch(text) for text in (request.client_software_name, request.client_software_version)
    )

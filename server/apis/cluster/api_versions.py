"""ApiVersions (18): what this broker serves, in which versions, and the cluster's features.

- Only APIs with a handler are listed. Produce is listed from version 0, though served from 3: older librdkafka turns
  compression off otherwise (KAFKA-18659).
- Those of client metrics are listed while anybody is asked for some: librdkafka says on standard error that it got an
  instance id, and Kafka lists them only where a plugin takes the metrics.
- Versions 3 and later name the client's software; a name or version that does not match is INVALID_REQUEST (KIP-511).
- From version 5 the client says which cluster and node it takes the broker for, or neither: one without the other is
  INVALID_REQUEST, and another's id is REBOOTSTRAP_REQUIRED. It then asks its bootstrap servers anew (KIP-1242).
- Before version 4 a feature's least version 0 must not be shown: clients of that time reject it (KAFKA-17011).
- The response header is version 0 in every version, and an unknown version is answered as version 0 with
  UNSUPPORTED_VERSION (`ottla.server.network.dispatch`).
"""

import re
from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.kproto.releases import features
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import ANYBODY
from ottla.server.apis.table import needing_http

_TELEMETRY: Final = needing_http()

API = Api(ApiKey.API_VERSIONS, ANYBODY)

_NO_NODE: Final = -1
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    version = context.header.api_version
    if version >= 3 and not _names_software(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if version >= 5 and (code := _taken_for_another(request, context)) is not ErrorCode.NONE:
        return ApiVersionsResponse(error_code=code)
    if version >= 3:
        context.connection.client.named_software(request.client_software_name, request.client_software_version)
    if context.connection.sasl is not None:
        context.connection.sasl.api_versions_answered()
    broker = context.broker
    image = broker.metadata
    release = broker.config.ottla_kafka_release
    # As the release that the broker passes for: what that does not know is not told.
    known = {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()}
    if release is not None:
        known = dict(features(release))
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min_version, max_version=api.max_version)
            for api in broker.apis
            if api.key not in _TELEMETRY or broker.client_metrics.asks
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=min(highest, known[name]))
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if name in known and (version >= 4 or lowest > 0)
        ],
        finalized_features_epoch=image.revision,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in ((name, min(level, known.get(name, 0))) for name, level in image.features.items())
            if level > 0
        ],
    )


def _taken_for_another(request: ApiVersionsRequest, context: RequestContext) -> ErrorCode:
    """The error if a client names another cluster or node than this one. Source: `ApiVersionsRequest.isValid`."""
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return ErrorCode.INVALID_REQUEST
    broker = context.broker
    own = (broker.metadata.cluster_id, broker.node_id)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != own:
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def _names_software(request: ApiVersionsRequest) -> bool:
    return all(
        _SOFTWARE_NAME.fullmatch(text) for text in (request.client_software_name, request.client_software_version)
    )

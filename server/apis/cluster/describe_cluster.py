"""DescribeCluster (60): the cluster's id, controller and brokers, as the listener of the request reaches them.

- Endpoint type 1 is the brokers. Type 2, the controllers' own listeners, does not exist here: as at a Kafka broker
  it is MISMATCHED_ENDPOINT_TYPE, and anything else UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import NOT_ASKED, cluster_operations
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.DESCRIBE_CLUSTER, BY_HANDLER)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    image = context.broker.metadata
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(context.listener)
        if endpoint is not None and (request.include_fenced_brokers or not broker.fenced):
            brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.node_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
            )
    return DescribeClusterResponse(
        endpoint_type=_BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=(
            cluster_operations(context.access) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )

"""DescribeCluster (API key 60): cluster id, controller and brokers (KIP-700).

Promises: the live brokers with their endpoint on the listener that the request came through. The authorized
operations are filled only when asked for; else they are the smallest int32.

Versions: 1 says which kind of endpoint is meant, 1 brokers or 2 controllers, and permits
MISMATCHED_ENDPOINT_TYPE (KIP-919); 2 may include fenced brokers (KIP-1073).
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Request, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Response, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=-2147483648)

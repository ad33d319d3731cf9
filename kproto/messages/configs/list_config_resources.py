"""ListConfigResources (API key 74): the names of resources that have a configuration (KIP-1142).

Promises: in version 0 the client metrics subscriptions only (KIP-1000); from 1 on the types asked for, or
all of them when none is.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")

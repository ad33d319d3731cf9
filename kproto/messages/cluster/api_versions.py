"""ApiVersions (API key 18): which APIs in which versions the broker serves, and which features are
finalized.

Promises: exactly the APIs that are dispatched, with their ranges. The client sends it first on a
connection, before it knows anything of the broker.

Versions: 1 adds throttling; 3 is flexible, has the client's software name and version, which must match
`[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?` or the answer is INVALID_REQUEST (KIP-511), and answers
features as tagged fields (KIP-584); 4 permits a feature range that starts at 0; 5 names the cluster and the node
that the client takes the broker for, which answers REBOOTSTRAP_REQUIRED if it is another (KIP-1242).

What brokers get wrong: the response header is version 0 for every version, since the client cannot know how
to read another. A version that is not served is answered with a version 0 body, error 35 and at least the
range of key 18 itself. Do not list an API without serving it.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Request, api_key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+"):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Response, api_key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+"):
    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, tagged="3+", ignorable=True)
    finalized_features_epoch: int = int64("3+", tag=1, tagged="3+", default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, tagged="3+", ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, tagged="3+", ignorable=True)

"""CreateAcls (API key 30): add access control entries.

Promises: each entry is added or refused on its own, answers in the order of the request; an entry that
exists already is a success. Without an authorizer SECURITY_DISABLED.

Versions: 1 adds pattern types (KIP-290); 2 is flexible; 3 the resource type user (KIP-373).
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class CreateAclsRequest(Request, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation, "0+")


class AclCreationResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class CreateAclsResponse(Response, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")

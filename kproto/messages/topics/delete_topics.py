"""DeleteTopics (API key 20): delete topics.

Promises: each topic is deleted or refused on its own; what was deleted is gone from Metadata by then, and
its committed offsets with it. A topic created again under the name gets another id.

Versions: 4 is flexible; 5 adds an error message and permits THROTTLING_QUOTA_EXCEEDED (KIP-599); 6 replaces
the names by structs of name or id (KIP-516): exactly one of them, and an unknown id is UNKNOWN_TOPIC_ID.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: UUID = uuid("6+")


class DeleteTopicsRequest(Request, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Struct):
    name: str | None = string("0+", nullable="6+")
    topic_id: UUID = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")

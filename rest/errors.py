"""The error responses of the REST proxy: Confluent's error codes, with sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.client.errors import BrokerError, ClientError, ConnectionLostError, UnknownTopicError
from ottla.kproto.errors import ErrorCode

KAFKA_ERROR: Final = 50002
RETRIABLE_KAFKA_ERROR: Final = 50003
NOT_AUTHORIZED: Final = 40301
TOPIC_NOT_FOUND: Final = 40401
LEADER_NOT_AVAILABLE: Final = 40404

_NOT_AUTHORIZED: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


class RestError(Exception):
    """An answer with an error code, whose first three digits are the HTTP status; with headers for the answer."""

    def __init__(self, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else int(str(self.code)[:3])


def topic_not_found() -> RestError:
    return RestError(TOPIC_NOT_FOUND, "Topic not found.")


def partition_not_found() -> RestError:
    return RestError(40402, "Partition not found.")


def consumer_not_found() -> RestError:
    return RestError(40403, "Consumer instance not found.")


def format_mismatch() -> RestError:
    what = "The requested embedded data format does not match the deserializer for this consumer instance"
    return RestError(40601, what)


def consumer_exists() -> RestError:
    return RestError(40902, "Consumer with specified consumer ID already exists in the specified consumer group.")


def illegal_state(why: str) -> RestError:
    return RestError(40903, f"Illegal state: {why}")


def invalid_consumer_config(why: str) -> RestError:
    return RestError(42204, f"Invalid consumer configuration: {why}")


def key_schema_missing() -> RestError:
    return RestError(42201, "Request includes keys but does not include key schema")


def value_schema_missing() -> RestError:
    return RestError(42202, "Request includes values but does not include value schema")


def conversion_failed(why: object) -> RestError:
    return RestError(42203, f"Conversion of JSON failed: {why}")


def invalid_schema(why: object) -> RestError:
    return RestError(42205, f"Invalid schema: {why}")


def unprocessable(why: str) -> RestError:
    return RestError(422, why)


def bad_request(why: str) -> RestError:
    return RestError(400, why)


def of_kafka(error: ClientError) -> RestError:
    """The error response for a failed request to a broker."""
    if isinstance(error, UnknownTopicError):
        return topic_not_found()
    if isinstance(error, BrokerError):
        known = ErrorCode.of(error.code)
        if known in _NOT_AUTHORIZED:
            return RestError(NOT_AUTHORIZED, str(error))
        if known.retriable:
            return RestError(RETRIABLE_KAFKA_ERROR, f"Retriable Kafka error: {error}")
    elif isinstance(error, ConnectionLostError):
        return RestError(RETRIABLE_KAFKA_ERROR, f"Retriable Kafka error: {error}")
    return RestError(KAFKA_ERROR, f"Kafka error: {error}")

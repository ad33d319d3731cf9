"""Every exception has its code, and every API a way to say that a request failed."""

import inspect
from types import ModuleType
from typing import Any

import pytest

from ottla.coordinator import errors as coordinator_errors
from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode, errors_by_code
from ottla.kproto.messages import request_class
from ottla.kproto.messages.access.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.produce import ProduceRequest
from ottla.kproto.schema import Struct, StructType
from ottla.metadata import errors as metadata_errors
from ottla.replica import errors as replica_errors
from ottla.server.apis.errors import error_code, error_response, error_response_in_steps
from ottla.storage import errors as storage_errors

EVERY_VERSION = [
    pytest.param(key, version, id=f"{key.name}-{version}")
    for key in ApiKey
    for version in range(key.valid_versions.lowest, key.valid_versions.highest + 1)
]


def filled(cls: StructType, version: int) -> Struct:
    """A struct with one element in every list of its version."""
    message: Struct = cls()
    for field in cls.FIELDS:
        if field.versions.includes(version) and field.kind == "array":
            element = field.element
            assert element is not None
            if isinstance(element, StructType):
                setattr(message, field.name, [filled(element, version)])
            else:
                setattr(message, field.name, ["x" if element.name == "string" else 3])
    return message


def codes_in(message: Struct) -> list[int]:
    found = []
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        elif isinstance(value, list):
            found += [code for item in value if isinstance(item, Struct) for code in codes_in(item)]
    return found


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_every_api_can_say_that_a_whole_request_failed(key: ApiKey, version: int) -> None:
    request = filled(request_class(key), version)
    if isinstance(request, ProduceRequest):
        request.acks = -1
    response = error_response(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)  # type: ignore[arg-type]
    assert response is not None
    parsed = codec.parse_response(key, version, codec.build(response, version))
    assert ErrorCode.UNKNOWN_SERVER_ERROR in codes_in(parsed)


def test_a_failed_response_names_what_was_asked() -> None:
    partitions = [ListOffsetsPartition(partition_index=4), ListOffsetsPartition(partition_index=7)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="flights", partitions=partitions)])
    response = error_response(request, 5, ErrorCode.UNKNOWN_SERVER_ERROR)
    (topic,) = response.topics  # type: ignore[union-attr]
    assert topic.name == "flights"
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(4, -1), (7, -1)]


def test_many_short_lists_are_failed_one_by_one_as_one_long_list_is() -> None:
    partitions = [ListOffsetsPartition(partition_index=n) for n in range(50)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=str(n), partitions=partitions) for n in range(60)])
    steps = error_response_in_steps(request, 6, ErrorCode.POLICY_VIOLATION)
    assert sum(1 for _ in steps) == 50 * 60 + 60


def test_each_user_of_a_failed_change_of_passwords_is_named_once() -> None:
    """As AlterUserScramCredentialsRequest.getErrorResponse."""
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="ann", mechanism=1)],
        upsertions=[ScramCredentialUpsertion(name=name, mechanism=1) for name in ("bob", "ann")],
    )
    response: Any = error_response(request, 0, ErrorCode.NOT_CONTROLLER)
    assert [(it.user, it.error_code) for it in response.results] == [
        ("ann", ErrorCode.NOT_CONTROLLER),
        ("bob", ErrorCode.NOT_CONTROLLER),
    ]


def test_nothing_may_answer_a_produce_without_acks() -> None:
    assert error_response(ProduceRequest(acks=0), 9, ErrorCode.UNKNOWN_SERVER_ERROR) is None


@pytest.mark.parametrize("module", [storage_errors, metadata_errors, coordinator_errors, replica_errors])
def test_no_exception_of_the_layers_below_is_forgotten(module: ModuleType) -> None:
    classes = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == module.__name__]
    leaves = [cls for cls in classes if not cls.__subclasses__()]
    # These never reach a client: they end the start, a watch or a background task, or send checks to another thread.
    internal = {
        "ChecksTakeLongError",
        "DataDirLockedError",
        "DataDirUnusableError",
        "UnsupportedFormatError",
        "UnexpectedAppendOffsetError",
        "WatchLaggedError",
        "LeaseExpiredError",
        "DuplicateBrokerIdError",
        "MetadataDamagedError",
        "MoveRefusedError",
    }
    missing = {cls.__name__ for cls in leaves if "code" not in vars(cls)} - internal
    assert missing == set()


def test_what_another_broker_answers_is_the_first_error_of_its_code() -> None:
    errors = errors_by_code(coordinator_errors.CoordinatorError)
    assert errors[ErrorCode.NOT_COORDINATOR] is coordinator_errors.NotCoordinatorError
    assert errors[ErrorCode.INVALID_REQUEST] is coordinator_errors.InvalidRequestError
    assert ErrorCode.UNKNOWN_SERVER_ERROR in errors  # a state that is too large
    assert ErrorCode.CORRUPT_MESSAGE not in errors


def test_a_subclass_has_its_base_class_code_and_the_unforeseen_has_none() -> None:
    class Special(storage_errors.RecordTooLargeError):
        pass

    assert error_code(Special()) is ErrorCode.MESSAGE_TOO_LARGE
    assert error_code(OSError()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert error_code(ZeroDivisionError()) is ErrorCode.UNKNOWN_SERVER_ERROR

"""The error codes and the messages package: complete, consistent, and cheap to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.kproto.api_keys import ApiKey, valid_versions
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages import request_class, response_class
from ottla.kproto.versions import VersionRange


def test_error_codes_are_dense_and_explained() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))
    assert all(
        (code.message.endswith(".") and code.message[0].isupper()) or code.message[:4] == "acks" for code in ErrorCode
    )
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)


def test_retriable_codes() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.KAFKA_STORAGE_ERROR.retriable
    assert not ErrorCode.UNKNOWN_SERVER_ERROR.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("api_key", ApiKey)
def test_api_table_equals_the_declarations(api_key: ApiKey) -> None:
    for cls in (request_class(api_key), response_class(api_key)):
        unstable = cls.UNSTABLE_VERSIONS
        released = VersionRange(cls.VERSIONS.lowest, unstable.lowest - 1) if unstable.highest >= 0 else cls.VERSIONS
        assert cls.API_KEY is api_key
        assert released == api_key.valid_versions
        assert api_key.flexible_versions == cls.FLEXIBLE_VERSIONS


def test_unknown_key_has_no_versions() -> None:
    assert valid_versions(4) is None
    assert valid_versions(0) == (3, 13)


LOADED = """
import sys
import {module}
print(sorted(name for name in sys.modules if name.startswith(("ottla.kproto.", "construct"))))
"""


@pytest.mark.parametrize(
    ("module", "unloaded"),
    [
        ("ottla.kproto", "ottla.kproto."),
        ("ottla.kproto.codec", "ottla.kproto.messages."),
        ("ottla.kproto.codec", "construct"),
    ],
)
def test_nothing_is_loaded_before_it_is_used(module: str, unloaded: str) -> None:
    script = LOADED.format(module=module)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert unloaded not in done.stdout.replace("'ottla.kproto.messages'", "")


def test_a_code_of_a_newer_broker_is_an_unknown_error() -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(12_345) is ErrorCode.UNKNOWN_SERVER_ERROR

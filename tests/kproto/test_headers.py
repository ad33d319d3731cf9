"""Headers agree with their declarations, and unknown requests can still be answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, EncodeError, UnsupportedApiError
from ottla.kproto.headers import (
    RequestHeader,
    ResponseHeader,
    build_request_header,
    build_response_header,
    parse_request_header,
    parse_response_header,
)

SERVED = [
    (key, version) for key in ApiKey for version in range(key.valid_versions.lowest, key.valid_versions.highest + 1)
]


@given(st.sampled_from(SERVED), st.integers(-(2**31), 2**31 - 1), st.none() | st.text("abü", max_size=20))
def test_request_header_equals_its_declaration(
    served: tuple[ApiKey, int], correlation_id: int, client_id: str | None
) -> None:
    key, version = served
    raw = build_request_header(key, version, correlation_id, client_id)
    header = RequestHeader(api_key=key, api_version=version, correlation_id=correlation_id, client_id=client_id)
    assert raw == codec.build(header, 2 if key.is_flexible(version) else 1)
    assert parse_request_header(raw + b"body") == (header, len(raw))
    assert parse_request_header(memoryview(b"##" + raw), 2) == (header, len(raw) + 2)


@given(st.sampled_from(SERVED), st.integers(-(2**31), 2**31 - 1))
def test_response_header_equals_its_declaration(served: tuple[ApiKey, int], correlation_id: int) -> None:
    key, version = served
    raw = build_response_header(key, version, correlation_id)
    header = ResponseHeader(correlation_id=correlation_id)
    assert raw == codec.build(header, key.response_header_version(version))
    assert parse_response_header(key, version, raw + b"body") == (header, len(raw))


def test_api_versions_answers_with_header_version_0() -> None:
    assert build_response_header(ApiKey.API_VERSIONS, 3, 7) == b"\x00\x00\x00\x07"
    assert build_request_header(ApiKey.API_VERSIONS, 3, 7).endswith(b"\x00")


def test_client_id_stays_classic_in_flexible_headers() -> None:
    assert (
        build_request_header(ApiKey.FETCH, 16, 1, "ab") == b"\x00\x01\x00\x10\x00\x00\x00\x01" + b"\x00\x02ab" + b"\x00"
    )


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-5, 3), (4, 0), (18, 99), (0, 2), (1, 19)])
def test_unknown_requests_can_be_answered(key: int, version: int) -> None:
    raw = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big") + b"\x00\x00\x00\x2a"
    with pytest.raises(UnsupportedApiError) as caught:
        parse_request_header(raw)
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (key, version, 42)


def test_tagged_fields_of_a_header_are_kept() -> None:
    raw = build_request_header(ApiKey.FETCH, 16, 1, None)[:-1] + b"\x01\x05\x02ab"
    header, pos = parse_request_header(raw)
    assert [tuple(field) for field in header.unknown_tagged_fields] == [(5, b"ab")]
    assert pos == len(raw)


@pytest.mark.parametrize("size", range(11))
def test_truncated_header(size: int) -> None:
    raw = build_request_header(ApiKey.FETCH, 16, 1, "ab")
    with pytest.raises(DecodeError):
        parse_request_header(raw[:size])


def test_values_that_do_not_fit() -> None:
    with pytest.raises(EncodeError):
        build_request_header(ApiKey.FETCH, 16, 1, "x" * 40_000)
    with pytest.raises(EncodeError):
        build_response_header(ApiKey.FETCH, 16, 1 << 31)

"""SCRAM credentials of users: set, described, removed, refused."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.kproto.messages.access.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.metadata.scram_changes import ScramMechanism, credential_of

Call = Callable[..., Awaitable[Any]]

SHA_256, SHA_512 = 1, 2


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


async def alter(call: Call, *upsertions: ScramCredentialUpsertion, delete: list[tuple[str, int]] | None = None) -> Any:
    deletions = [ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in delete or []]
    response = await call(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions)), 0)
    return {result.user: ErrorCode(result.error_code) for result in response.results}


async def describe(call: Call, *users: str) -> Any:
    asked = [UserName(name=user) for user in users] or None
    response = await call(DescribeUserScramCredentialsRequest(users=asked), 0)
    assert response.error_code == ErrorCode.NONE
    return {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        if not result.error_code
        else ErrorCode(result.error_code)
        for result in response.results
    }


async def test_what_was_set_is_described_without_its_secrets(call: Call, broker: Any) -> None:
    assert await alter(call, upsertion("ann"), upsertion("bob", SHA_512, 8192)) == {
        "ann": ErrorCode.NONE,
        "bob": ErrorCode.NONE,
    }
    assert await alter(call, upsertion("ann", SHA_512)) == {"ann": ErrorCode.NONE}
    everybody = {"ann": [(SHA_256, 4096), (SHA_512, 4096)], "bob": [(SHA_512, 8192)]}
    assert await describe(call) == everybody
    assert await describe(call, "bob", "carl") == {"bob": [(SHA_512, 8192)], "carl": ErrorCode.RESOURCE_NOT_FOUND}
    assert await describe(call, "bob", "bob") == {"bob": ErrorCode.DUPLICATE_RESOURCE}
    kept = broker.metadata.scram_credentials["ann", ScramMechanism.SCRAM_SHA_256]
    assert upsertion("ann").salted_password not in kept


async def test_a_credential_is_removed(call: Call) -> None:
    await alter(call, upsertion("ann"))
    assert await alter(call, delete=[("ann", SHA_512)]) == {"ann": ErrorCode.RESOURCE_NOT_FOUND}
    assert await alter(call, delete=[("ann", SHA_256)]) == {"ann": ErrorCode.NONE}
    assert await describe(call) == {}


WITHOUT_PASSWORD = ScramCredentialUpsertion(
    name="ann", mechanism=SHA_256, iterations=4096, salt=b"salt", salted_password=b""
)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (upsertion("ann", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (WITHOUT_PASSWORD, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_what_is_not_good_enough_is_refused(call: Call, wrong: ScramCredentialUpsertion, code: ErrorCode) -> None:
    assert await alter(call, wrong, upsertion("bob")) == {wrong.name: code, "bob": ErrorCode.NONE}
    assert await describe(call) == {"bob": [(SHA_256, 4096)]}


async def test_a_user_is_altered_once_in_a_request_or_not_at_all(call: Call) -> None:
    assert await alter(call, upsertion("ann"), upsertion("ann", SHA_512), upsertion("bob")) == {
        "ann": ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.NONE,
    }
    assert await alter(call, upsertion("bob"), delete=[("bob", SHA_256)]) == {"bob": ErrorCode.DUPLICATE_RESOURCE}
    assert await describe(call) == {"bob": [(SHA_256, 4096)]}


def test_what_is_kept_is_that_of_rfc_7677() -> None:
    """The exchange in section 3: the keys that it needs, from the password and salt that it gives."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    kept = credential_of(ScramMechanism.SCRAM_SHA_256, salt, salted, 4096)
    assert base64.b64encode(kept.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(kept.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="

"""PLAIN and SCRAM as exchanges of bytes, against published examples, and what goes wrong in them."""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client import sasl as client
from ottla.client.errors import AuthenticationError
from ottla.metadata.scram_changes import ScramCredential, ScramKey, ScramMechanism, credential_of
from ottla.security.credentials import Credentials, salted
from ottla.security.errors import AuthenticationFailedError, InvalidCredentialsError
from ottla.security.plain import PlainExchange
from ottla.security.scram import ScramExchange

SHA_256 = ScramMechanism.SCRAM_SHA_256
SHA_512 = ScramMechanism.SCRAM_SHA_512


def stored(mechanism: ScramMechanism, user: str, password: str) -> dict[ScramKey, ScramCredential]:
    salt = b"salt of sixteen."
    return {(user, mechanism): credential_of(mechanism, salt, salted(mechanism, password, salt, 4096), 4096)}


ALICE = {**stored(SHA_256, "alice", "wonder"), **stored(SHA_512, "alice", "wonder")}


@pytest.fixture
def credentials() -> Credentials:
    return Credentials(lambda: ALICE)


async def exchange(server: ScramExchange | PlainExchange, asked: client.Exchange) -> None:
    """Let both talk until the client is content; what either says goes to the other."""
    answer = b""
    while True:
        message = asked.step(answer)
        if asked.is_complete:
            return
        answer = await server.step(message)


class TestScram:
    async def test_the_example_of_rfc_7677(self, monkeypatch: pytest.MonkeyPatch) -> None:
        salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
        credential = credential_of(SHA_256, salt, hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096), 4096)
        monkeypatch.setattr(secrets, "token_urlsafe", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
        server = ScramExchange(SHA_256, Credentials(lambda: {("user", SHA_256): credential}))
        assert await server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        )
        assert server.user is None
        assert await server.step(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        ) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
        assert server.user == "user"

    @pytest.mark.parametrize("mechanism", list(ScramMechanism))
    async def test_who_knows_the_password_is_let_in(self, mechanism: ScramMechanism, credentials: Credentials) -> None:
        server = ScramExchange(mechanism, credentials)
        await exchange(server, client.begin(mechanism.name.replace("_", "-"), "alice", "wonder"))
        assert server.user == "alice"

    async def test_names_with_commas_and_equals_signs(self) -> None:
        server = ScramExchange(SHA_512, Credentials(lambda: stored(SHA_512, "a=b,c", "x")))
        await exchange(server, client.begin("SCRAM-SHA-512", "a=b,c", "x"))
        assert server.user == "a=b,c"

    @pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonder")])
    async def test_an_unknown_user_is_refused_as_a_wrong_password_is(
        self, user: str, password: str, credentials: Credentials
    ) -> None:
        server = ScramExchange(SHA_256, credentials)
        with pytest.raises(InvalidCredentialsError, match=r"^unknown user or wrong password$"):
            await exchange(server, client.begin("SCRAM-SHA-256", user, password))
        assert server.user is None

    async def test_an_unknown_user_always_has_the_same_salt(self, credentials: Credentials) -> None:
        first, again, other = (credentials.scram(user, SHA_256).salt for user in ("nobody", "nobody", "nobody else"))
        assert first == again != other
        assert len(first) == len(ALICE["alice", SHA_256].salt)

    async def test_an_unknown_user_looks_like_those_whose_credentials_were_made_elsewhere(self) -> None:
        stored = {("eve", SHA_256): ScramCredential(b"s" * 26, b"k" * 32, b"k" * 32, 8192)}
        unknown = Credentials(lambda: stored).scram("nobody", SHA_256)
        assert (len(unknown.salt), unknown.iterations) == (26, 8192)

    async def test_messages_that_were_heard_are_of_no_use_in_another_exchange(self, credentials: Credentials) -> None:
        asked = client.begin("SCRAM-SHA-256", "alice", "wonder")
        first = asked.step(b"")
        last = asked.step(await ScramExchange(SHA_256, credentials).step(first))
        other = ScramExchange(SHA_256, credentials)
        await other.step(first)
        with pytest.raises(InvalidCredentialsError, match="nonce"):
            await other.step(last)

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"y,,n=alice,r=x",
            b"p=tls-unique,,n=alice,r=x",
            b"n,,n=,r=x",
            b"n,,n=al=ice,r=x",
            b"n,,n=alice,r=",
            b"n,,r=x,n=alice",
            b"n,,n=\xff,r=x",
            b"n,,n=alice,r=x,1=y",
            b"n,,n=token,r=x,tokenauth=true",
        ],
    )
    async def test_first_messages_that_are_refused(self, message: bytes, credentials: Credentials) -> None:
        with pytest.raises(InvalidCredentialsError):
            await ScramExchange(SHA_256, credentials).step(message)

    async def test_another_authorization_id(self, credentials: Credentials) -> None:
        with pytest.raises(AuthenticationFailedError, match="different from username"):
            await ScramExchange(SHA_256, credentials).step(b"n,a=bob,n=alice,r=x")

    @given(st.binary(max_size=200), st.binary(max_size=200))
    async def test_any_bytes_are_refused_and_nobody_is_let_in(self, first: bytes, last: bytes) -> None:
        server = ScramExchange(SHA_256, Credentials(lambda: ALICE))
        refusals = []
        for message in (b"n,,n=alice,r=" + first, last):
            try:
                await server.step(message)
            except (InvalidCredentialsError, AuthenticationFailedError) as error:
                refusals.append(error)
        assert refusals
        assert server.user is None

    @pytest.mark.parametrize("answer", [b"", b"r=other,s=c2FsdA==,i=4096", b"r=x", b"v=x", b"\xff", b"r=x,s=!,i=9"])
    def test_a_client_refuses_answers_that_make_no_sense(self, answer: bytes) -> None:
        asked = client.begin("SCRAM-SHA-256", "alice", "wonder")
        asked.step(b"")
        with pytest.raises(AuthenticationError, match="does not speak SCRAM-SHA-256"):
            asked.step(answer)

    async def test_a_client_finds_out_that_the_broker_does_not_know_the_password(
        self, credentials: Credentials
    ) -> None:
        asked = client.begin("SCRAM-SHA-256", "alice", "wonder")
        asked.step(await ScramExchange(SHA_256, credentials).step(asked.step(b"")))
        with pytest.raises(AuthenticationError, match="does not know the password"):
            asked.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
        assert not asked.is_complete

    def test_a_client_does_not_hash_for_minutes(self) -> None:
        asked = client.begin("SCRAM-SHA-256", "alice", "wonder")
        nonce = asked.step(b"").decode().rpartition("r=")[2]
        with pytest.raises(AuthenticationError):
            asked.step(f"r={nonce}x,s=c2FsdA==,i=2000000000".encode())


class TestPlain:
    @pytest.mark.parametrize(("user", "password"), [("bob", "b:secret"), ("alice", "wonder")])
    async def test_users_of_the_listener_and_of_the_metadata(
        self, user: str, password: str, credentials: Credentials
    ) -> None:
        server = PlainExchange(credentials, {"bob": "b:secret"})
        await exchange(server, client.begin("PLAIN", user, password))
        assert server.user == user

    @pytest.mark.parametrize(
        "message",
        [b"\0alice\0wrong", b"\0bob\0wrong", b"\0nobody\0wonder", b"\0alice\0wonder ", b"\0ALICE\0wonder"],
    )
    async def test_unknown_users_and_wrong_passwords_have_one_answer(
        self, message: bytes, credentials: Credentials
    ) -> None:
        server = PlainExchange(credentials, {"bob": "b:secret"})
        with pytest.raises(AuthenticationFailedError, match=r"^Authentication failed: Invalid username or password$"):
            await server.step(message)
        assert server.user is None

    @pytest.mark.parametrize("message", [b"", b"\0", b"\0\0", b"alice", b"\0alice", b"\0alice\0", b"\0\0wonder"])
    async def test_without_a_name_or_a_password(self, message: bytes, credentials: Credentials) -> None:
        with pytest.raises(InvalidCredentialsError, match="was given"):
            await PlainExchange(credentials, {}).step(message)

    async def test_an_authorization_id(self, credentials: Credentials) -> None:
        same = PlainExchange(credentials, {})
        await same.step(b"alice\0alice\0wonder")
        assert same.user == "alice"
        other = PlainExchange(credentials, {})
        with pytest.raises(AuthenticationFailedError, match="different from username"):
            await other.step(b"root\0alice\0wonder")
        assert other.user is None


class TestTheWorkOfARefusal:
    """Counted in hash functions and rounds: a clock would tell more of the machine than of the code."""

    @pytest.fixture
    def hashed(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
        counted: list[tuple[str, int]] = []
        pbkdf2 = hashlib.pbkdf2_hmac

        def count(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
            counted.append((digest, iterations))
            return pbkdf2(digest, password, salt, iterations)

        monkeypatch.setattr(hashlib, "pbkdf2_hmac", count)
        return counted

    @pytest.mark.parametrize("mechanisms", [(SHA_256, SHA_512), (SHA_512,)])
    async def test_plain_hashes_every_wrong_password_alike(
        self, mechanisms: tuple[ScramMechanism, ...], hashed: list[tuple[str, int]]
    ) -> None:
        known = {key: it for mechanism in mechanisms for key, it in stored(mechanism, "alice", "wonder").items()}
        credentials = Credentials(lambda: known)
        works = []
        for user in ("alice", "nobody", "bob"):
            hashed.clear()
            with pytest.raises(AuthenticationFailedError):
                await PlainExchange(credentials, {"bob": "b-secret"}).step(f"\0{user}\0wrong".encode())
            works.append(list(hashed))
        assert works[0] == works[1] == works[2]
        assert len(works[0]) == 1

    async def test_scram_hashes_nothing_for_anybody(self, hashed: list[tuple[str, int]]) -> None:
        credentials = Credentials(lambda: ALICE)
        for user in ("alice", "nobody"):
            asked = client.begin("SCRAM-SHA-256", user, "wrong")
            server = ScramExchange(SHA_256, credentials)
            last = asked.step(await server.step(asked.step(b"")))
            hashed.clear()  # that was the client's
            with pytest.raises(InvalidCredentialsError):
                await server.step(last)
            assert hashed == []
            await ScramExchange(SHA_256, credentials).step(client.begin("SCRAM-SHA-256", user, "wrong").step(b""))
            assert hashed == []

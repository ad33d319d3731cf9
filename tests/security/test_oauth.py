"""Tokens: which are good, which are refused whatever they look like, where the keys come from, and the exchange."""

from __future__ import annotations

import hmac
import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("joserfc")

from joserfc import jwe, jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from ottla.client import sasl as client
from ottla.security.errors import AuthenticationFailedError, InvalidCredentialsError
from ottla.security.oauth.jwks import FileKeys, UrlKeys, parse_keys
from ottla.security.oauth.jwt_validator import JwtValidator
from ottla.security.oauth.oauthbearer import AccessToken, OAuthBearerExchange, TokenRefusedError
from ottla.security.oauth.token_validators import token_validator
from ottla.security.oauth.unsecured_jwt import UnsecuredValidator
from ottla.settings.config import BrokerConfig, ConfigError
from ottla.storage.clock import ManualClock

NOW: Final = 1_800_000_000
EC: Final = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
RSA: Final = RSAKey.generate_key(2048, {"kid": "rsa", "alg": "RS256"})
OTHER: Final = ECKey.generate_key("P-256", {"kid": "ec"})
SHARED: Final = OctKey.import_key("a secret that everybody reads in the key set", {"kid": "shared"})
CLAIMS: Final[Mapping[str, Any]] = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 600, "iss": "us", "aud": "kafka"}


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=isinstance(key, OctKey)) for key in keys]}).encode()


def signed(claims: Mapping[str, Any] = CLAIMS, key: Any = EC, **header: Any) -> str:
    named = {"alg": "ES256" if isinstance(key, ECKey) else "RS256", "kid": key.kid, **header}
    lenient = JWSRegistry(algorithms=[named["alg"]], strict_check_header=False)
    return jwt.encode({name: it for name, it in named.items() if it is not None}, dict(claims), key, registry=lenient)


def encoded(*parts: Any) -> str:
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(EC, RSA, SHARED))
    return path


def validator(keys: Path, **settings: Any) -> JwtValidator:
    named: dict[str, Any] = {
        "issuer": "us",
        "audiences": ["kafka"],
        "clock_skew_seconds": 30,
        "scope_claim": "scope",
        "name_claim": "sub",
    }
    return JwtValidator(FileKeys(str(keys)), ManualClock(NOW * 1000), **named | settings)


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(key=RSA),
        signed(key=EC, kid=None),
        signed(key=RSA, kid=None),
        signed({**CLAIMS, "aud": ["others", "kafka"], "scope": ["a", "b"]}),
        signed({**CLAIMS, "scope": "a b", "exp": NOW - 29, "iat": NOW - 600, "nbf": NOW - 60}),
        signed(typ="at+jwt", x5t="abc", nonce="an issuer's own"),
    ],
    ids=range(7),
)
async def test_good_tokens(keys: Path, token: str) -> None:
    found = await validator(keys).validate(token)
    assert found.name == "alice"
    assert found.expires_at_ms in ((NOW + 600) * 1000, (NOW - 29) * 1000)


async def test_the_name_may_stand_in_another_claim(keys: Path) -> None:
    claims = {**CLAIMS, "preferred_username": " al "}
    assert (await validator(keys, name_claim="preferred_username").validate(signed(claims))).name == "al"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW - 30}, "expired"),
        ({"exp": None}, "exp is missing"),
        ({"exp": "tomorrow"}, "exp is missing or not a time"),
        ({"exp": True}, "exp is missing or not a time"),
        ({"exp": 1e300}, "exp is missing or not a time"),
        ({"iat": None}, "iat is missing"),
        ({"iat": NOW + 700}, "before it begins"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iss": "them"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "others"}, "audience"),
        ({"aud": None}, "audience is missing"),
        ({"aud": {"kafka": 1}}, "malformed"),
        ({"sub": None}, "sub holds no name"),
        ({"sub": " "}, "sub holds no name"),
        ({"sub": ["alice"]}, "sub holds no name"),
        ({"scope": {"a": 1}}, "scope is malformed"),
        ({"scope": ["a", ""]}, "scope is malformed"),
    ],
)
async def test_claims_that_are_refused(keys: Path, changes: dict[str, Any], reason: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    with pytest.raises(TokenRefusedError, match=reason):
        await validator(keys).validate(signed(claims))


async def test_a_token_for_somebody_is_taken_where_nobody_is_expected(keys: Path) -> None:
    """With `sasl.oauthbearer.allow.unverified.audience` and `.issuer`, without which no listener expects nobody."""
    nobody = validator(keys, audiences=[], issuer=None)
    without = {name: value for name, value in CLAIMS.items() if name not in ("aud", "iss")}
    for token in (signed(), signed(without)):
        assert (await nobody.validate(token)).name == "alice"


def confused(secret: bytes) -> str:
    """Signed by HMAC with what everybody may know: the text of a public key."""
    unsigned = encoded({"alg": "HS256", "kid": "rsa"}, dict(CLAIMS))
    signature = hmac.digest(secret, unsigned.encode(), "sha256")
    return f"{unsigned}.{urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "token",
    [
        encoded({"alg": "none"}, dict(CLAIMS)) + ".",
        encoded({"alg": "None", "kid": "ec"}, dict(CLAIMS)) + ".",
        encoded({"alg": "none", "kid": "ec"}, dict(CLAIMS)) + "." + signed().rpartition(".")[2],
        encoded({"alg": "ES256", "kid": "ec"}, dict(CLAIMS)) + ".",
        confused(RSA.as_pem(private=False)),
        confused(RSA.as_der(private=False)),
        jwt.encode({"alg": "HS256", "kid": "shared"}, dict(CLAIMS), SHARED, ["HS256"]),
        signed(key=OTHER),
        signed(key=OTHER, jwk=OTHER.as_dict(private=False)),
        signed(key=OTHER, jku="https://evil.example.com/keys", x5u="https://evil.example.com"),
        signed(key=EC, kid="rsa"),
        signed(key=EC, kid="unknown"),
        encoded({"alg": "ES256", "kid": "ec", "crit": ["exp"], "exp": 1}, dict(CLAIMS)) + ".AAAA",
        signed()[:-4] + "AAAA",
        encoded({"alg": "ES256", "kid": "ec"}, {**CLAIMS, "sub": "root"}) + "." + signed().rpartition(".")[2],
        jwe.encrypt_compact({"alg": "RSA-OAEP", "enc": "A128GCM"}, json.dumps(dict(CLAIMS)).encode(), RSA),
        "",
        "..",
        "a.b.c",
        "=.=.=",
        encoded([], []) + ".",
        encoded({"alg": ["ES256"]}, {}) + ".",
        "[" * 50_000,
        encoded({"alg": "ES256", "kid": "x" * 20_000}, {}) + ".AAAA",
    ],
    ids=range(24),
)
async def test_what_is_no_signature_of_the_issuers_is_refused(keys: Path, token: str) -> None:
    with pytest.raises(TokenRefusedError):
        await validator(keys).validate(token)


@given(token=st.text(alphabet=st.sampled_from("-_.aZ09eyJ="), max_size=200))
def test_nothing_else_is_raised(token: str) -> None:
    made = JwtValidator(
        type("Keys", (), {"current": lambda self, unknown=False: [EC]})(),
        ManualClock(NOW * 1000),
        issuer=None,
        audiences=[],
        clock_skew_seconds=0,
        scope_claim="scope",
        name_claim="sub",
    )
    with pytest.raises(TokenRefusedError):
        made._claims(token)


class TestKeys:
    def test_a_file_is_read_again_when_it_changes(self, keys: Path, caplog: pytest.LogCaptureFixture) -> None:
        source = FileKeys(str(keys))
        assert {key.kid for key in source.current()} == {"ec", "rsa"}  # and no shared one
        keys.write_bytes(key_set(OTHER))
        assert [key.as_dict(private=False)["x"] for key in source.current()] == [OTHER.as_dict(private=False)["x"]]
        keys.write_bytes(b"{")
        assert len(source.current()) == 1
        assert "stay as they were" in caplog.text

    def test_a_file_that_could_not_be_opened_is_read_the_next_time(
        self, keys: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = FileKeys(str(keys))
        keys.write_bytes(key_set(OTHER))
        with monkeypatch.context() as patch:
            patch.setattr("builtins.open", Mock(side_effect=OSError("too many open files")))
            assert len(source.current()) == 2
        assert len(source.current()) == 1

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": 1}', '{"keys": [1, {"kty": "new"}]}', "x" * 2_000_000])
    def test_what_is_no_key_set_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"Expecting|no RSA or elliptic-curve public key|more than"):
            parse_keys(text.encode())

    def test_an_unknown_kind_beside_others_is_passed_over(self) -> None:
        both = {"keys": [{"kty": "AKP", "kid": "q"}, EC.as_dict(private=False)]}
        assert [key.kid for key in parse_keys(json.dumps(both).encode())] == ["ec"]


class Issuer:
    """An HTTP server with a key set, which counts who asks."""

    def __init__(self) -> None:
        self.body = key_set(EC)
        self.status = 200
        self.asked = 0
        #: Sent in place of an HTTP answer.
        self.nonsense = b""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                if issuer.nonsense:
                    self.wfile.write(issuer.nonsense)
                    return
                self.send_response(issuer.status)
                if issuer.status == 302:
                    self.send_header("location", "file:///etc/passwd")
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.server.shutdown()
    made.server.server_close()


class TestUrl:
    def source(self, issuer: Issuer) -> tuple[UrlKeys, list[float]]:
        now = [1000.0]
        made = UrlKeys(issuer.url, None, refresh_ms=3_600_000, backoff_ms=100, backoff_max_ms=400, clock=lambda: now[0])
        return made, now

    def test_keys_are_kept_until_it_is_time(self, issuer: Issuer) -> None:
        source, now = self.source(issuer)
        assert [key.kid for key in source.current()] == ["ec"]
        source.current()
        now[0] += 3599
        source.current()
        assert issuer.asked == 1
        now[0] += 2
        source.current()
        assert issuer.asked == 2

    def test_an_unknown_key_asks_again_but_seldom(self, issuer: Issuer) -> None:
        source, now = self.source(issuer)
        source.current()
        issuer.body = key_set(OTHER)
        for _ in range(5):
            source.current(unknown=True)
        assert issuer.asked == 2
        now[0] += 61
        source.current(unknown=True)
        assert issuer.asked == 3

    @pytest.mark.usefixtures("without_jitter")
    def test_an_issuer_that_fails_is_asked_after_growing_pauses(
        self, issuer: Issuer, caplog: pytest.LogCaptureFixture
    ) -> None:
        source, now = self.source(issuer)
        source.current()
        issuer.status = 500
        now[0] += 3601
        asked = []
        for _ in range(12):
            assert [key.kid for key in source.current()] == ["ec"]
            source.current(unknown=True)
            asked.append(issuer.asked)
            now[0] += 0.1
        assert asked == [2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6]
        assert "no keys from" in caplog.text
        issuer.status = 200
        now[0] += 1
        source.current()
        assert source._backoff.failures == 0

    @pytest.mark.parametrize(
        "nonsense",
        [
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        ],
        ids=["not HTTP", "cut off", "nested too deep"],
    )
    def test_an_issuer_that_answers_nonsense_is_asked_after_a_pause(self, issuer: Issuer, nonsense: bytes) -> None:
        source, now = self.source(issuer)
        source.current()
        issuer.nonsense = nonsense
        now[0] += 3601
        for _ in range(3):
            assert [key.kid for key in source.current()] == ["ec"]
        assert issuer.asked == 2

    def test_it_follows_no_way_out(self, issuer: Issuer) -> None:
        source, _ = self.source(issuer)
        issuer.status = 302
        assert source.current() == []
        issuer.status, issuer.body = 200, b" " * 2_000_000
        source._due = 0
        assert source.current() == []

    async def test_a_rotated_key_is_found(self, issuer: Issuer) -> None:
        source, _ = self.source(issuer)
        checks = JwtValidator(
            source,
            ManualClock(NOW * 1000),
            issuer="us",
            audiences=["kafka"],
            clock_skew_seconds=0,
            scope_claim="scope",
            name_claim="sub",
        )
        new = ECKey.generate_key("P-256", {"kid": "new"})
        assert (await checks.validate(signed())).name == "alice"
        issuer.body = key_set(EC, new)
        assert (await checks.validate(signed(key=new))).name == "alice"


def unsecured(claims: Mapping[str, Any], **header: Any) -> str:
    return encoded({"alg": "none", **header}, dict(claims)) + "."


class TestUnsecured:
    async def test_it_believes_what_makes_sense(self) -> None:
        checks = UnsecuredValidator({}, ManualClock(NOW * 1000))
        assert await checks.validate(unsecured({"sub": "bob", "exp": NOW + 1})) == AccessToken("bob", (NOW + 1) * 1000)

    @pytest.mark.parametrize(
        "token",
        [
            signed(),
            unsecured({"sub": "bob"}),
            unsecured({"sub": "bob", "exp": NOW}),
            unsecured({"sub": "bob", "exp": NOW + 9, "iat": NOW + 5}),
            unsecured({"sub": "bob", "exp": NOW + 9, "nbf": "x"}),
            unsecured({"exp": NOW + 9}),
            "",
            "a.b.",
            "=.=.",
        ],
        ids=range(9),
    )
    async def test_what_makes_none_is_refused(self, token: str) -> None:
        with pytest.raises(TokenRefusedError) as refused:
            await UnsecuredValidator({}, ManualClock(NOW * 1000)).validate(token)
        assert refused.value.answer == '{"status":"invalid_token"}'

    async def test_scopes_may_be_asked_for(self) -> None:
        checks = UnsecuredValidator({"unsecuredValidatorRequiredScope": "a b"}, ManualClock(NOW * 1000))
        claims = {"sub": "bob", "exp": NOW + 9}
        for scope in ("b a c", ["a", "b"]):
            assert (await checks.validate(unsecured({**claims, "scope": scope}))).name == "bob"
        with pytest.raises(TokenRefusedError) as refused:
            await checks.validate(unsecured({**claims, "scope": "a"}))
        assert refused.value.answer == '{"status":"insufficient_scope", "scope":"[a, b]"}'


class TestExchange:
    @pytest.fixture
    def exchange(self) -> OAuthBearerExchange:
        return OAuthBearerExchange(UnsecuredValidator({}, ManualClock(NOW * 1000)))

    async def test_a_good_token(self, exchange: OAuthBearerExchange) -> None:
        asked = client.begin_with_token(unsecured({"sub": "bob", "exp": NOW + 9}))
        assert await exchange.step(asked.step(b"")) == b""
        assert (exchange.user, exchange.lifetime_ms) == ("bob", 9000)
        assert asked.step(b"") == b""
        assert asked.is_complete

    async def test_a_refused_token_is_read_before_it_fails(self, exchange: OAuthBearerExchange) -> None:
        asked = client.begin_with_token(unsecured({"sub": "bob"}))
        answer = await exchange.step(asked.step(b""))
        assert answer == b'{"status":"invalid_token"}'
        read = asked.step(answer)
        assert not asked.is_complete
        with pytest.raises(AuthenticationFailedError, match=r'^\{"status":"invalid_token"\}$') as failed:
            await exchange.step(read)
        assert "expired" in failed.value.reason
        assert exchange.user is None

    async def test_a_second_token_is_not_looked_at(self, exchange: OAuthBearerExchange) -> None:
        await exchange.step(client.begin_with_token(unsecured({"sub": "bob"})).step(b""))
        with pytest.raises(InvalidCredentialsError):
            await exchange.step(client.begin_with_token(unsecured({"sub": "bob", "exp": NOW + 9})).step(b""))

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"\x01",
            b"n,,",
            b"n,,\x01\x01",
            b"n,,\x01auth=Bearer a.b.c\x01",
            b"y,,\x01auth=Bearer a.b.c\x01\x01",
            b"n,,\x01auth=Basic a.b.c\x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
            b"n,,\x01auth=Bearer \xc3\xa9\x01\x01",
            b"n,,\x01other=Bearer a.b.c\x01\x01",
            b"n,,\x01auth=Bearer a.b.c\x01\x01more",
            b"\xff\xfe",
        ],
    )
    async def test_what_is_no_message_is_refused(self, exchange: OAuthBearerExchange, message: bytes) -> None:
        with pytest.raises(InvalidCredentialsError):
            await exchange.step(message)

    async def test_extensions_and_an_authorization_id(self, exchange: OAuthBearerExchange) -> None:
        token = unsecured({"sub": "bob", "exp": NOW + 9})
        assert await exchange.step(f"n,a=bob,\x01auth=bEARER   {token}\x01logicalCluster=lkc-1\x01\x01".encode()) == b""
        other = OAuthBearerExchange(UnsecuredValidator({}, ManualClock(NOW * 1000)))
        with pytest.raises(AuthenticationFailedError, match=r"authorization id \(eve\)"):
            await other.step(f"n,a=eve,\x01auth=Bearer {token}\x01\x01".encode())


PREFIX: Final = "listener.name.x.oauthbearer."
UNVERIFIED: Final = {f"sasl.oauthbearer.allow.unverified.{what}": "true" for what in ("audience", "issuer")}
UNSECURED: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


def made(settings: Mapping[str, str], options: Mapping[str, str] | None = None) -> Any:
    config = BrokerConfig({PREFIX + name: value for name, value in settings.items()}).for_listener("x", "OAUTHBEARER")
    return token_validator(config, "X", options or {}, ManualClock(NOW * 1000))


class TestSettings:
    def test_unsigned_tokens_are_taken_only_where_that_is_said(
        self, keys: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = "sasl.server.callback.handler.class"
        assert isinstance(made({handler: UNSECURED}), UnsecuredValidator)
        assert "can claim to be anybody" in caplog.text
        assert isinstance(made({}, {"unsecuredLoginStringClaim_sub": "x"}), UnsecuredValidator)
        url = {"sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()} | UNVERIFIED
        assert isinstance(made(url, {"unsecuredLoginStringClaim_sub": "x"}), JwtValidator)
        assert isinstance(made(url), JwtValidator)

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({}, "say where the issuer's public keys are"),
            ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/keys"} | UNVERIFIED, "write an https or a file URL"),
            (
                {"sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/file"} | UNVERIFIED,
                "/no/such/file cannot be used",
            ),
            ({"sasl.server.callback.handler.class": "com.example.Mine"}, "is com.example.Mine; Ottla has"),
        ],
    )
    def test_what_is_wrong_is_a_sentence(self, settings: dict[str, str], sentence: str) -> None:
        with pytest.raises(ConfigError, match=sentence):
            made(settings)

    @pytest.mark.parametrize("what", ["audience", "issuer"])
    def test_what_nobody_checks_must_be_meant(self, keys: Path, what: str) -> None:
        url = {"sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()} | UNVERIFIED
        del url[f"sasl.oauthbearer.allow.unverified.{what}"]
        with pytest.raises(ConfigError, match=rf"set sasl.oauthbearer.expected.{what}, or sasl.oauthbearer.allow"):
            made(url)
        assert isinstance(made(url | {f"sasl.oauthbearer.expected.{what}": "x"}), JwtValidator)

    def test_options_that_make_no_sense(self) -> None:
        with pytest.raises(ConfigError, match="login configuration"):
            made({}, {"unsecuredValidatorAllowableClockSkewMs": "soon"})

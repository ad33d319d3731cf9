"""Delegation tokens (KIP-48): Ottla beside Apache Kafka request by request, its tool, and its clients with a token."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from compat_tests import java
from compat_tests.brokers.process import HOST, BrokerProcess, free_port
from compat_tests.java.tools import JavaTools
from compat_tests.security import secure_clients
from compat_tests.security.secure_clients import VALUE, RefusedError
from compat_tests.security.test_authorization import SecureKafka, connected, entry
from compat_tests.security.test_security import SecureOttla, run_ottla
from compat_tests.wire.wire import Wire
from ottla.client import sasl
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.create_acls import CreateAclsRequest
from ottla.kproto.messages.access.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.kproto.messages.access.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.kproto.messages.access.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.kproto.messages.access.renew_delegation_token import RenewDelegationTokenRequest
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.schema import Request
from ottla.metadata.acls import AclResource

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.security]

USERS: Final = ("admin", "alice", "bob", "carl")
HOUR_MS: Final = 3_600_000
#: Within this two moments are one.
MOMENT_MS: Final = 60_000
JAAS: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    ['username="admin"', 'password="admin-p"', *(f'user_{user}="{user}-p"' for user in USERS)]
)
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS + ";",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "delegation.token.secret.key": "the key of all brokers",
    "delegation.token.max.lifetime.ms": str(48 * HOUR_MS),
    "delegation.token.expiry.time.ms": str(24 * HOUR_MS),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    port, controller = free_port(), f"{HOST}:{free_port()}"
    own = {
        "listeners": f"SASL_PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
        "advertised.listeners": f"SASL_PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    if reason := java.missing():
        pytest.skip(reason)
    with SecureKafka(tmp_path_factory.mktemp("kafka"), port, overrides=SETTINGS | own) as process:
        await_ready(process)
        yield process


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureOttla]:
    with SecureOttla(tmp_path_factory.mktemp("ottla"), f"SASL_PLAINTEXT://{HOST}:0", SETTINGS) as process:
        yield process


def await_ready(broker: BrokerProcess) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return connected(broker, "admin").close()
        except (OSError, EOFError):
            assert time.monotonic() < deadline
            time.sleep(0.2)


class Story:
    """Asks one broker, and notes what has to be alike of the answers."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.wires = {user: connected(broker, user) for user in USERS}
        self.notes: list[Any] = []

    def create(
        self, user: str, *, owner: str = "", renewers: tuple[str, ...] = (), version: int = 3, **more: Any
    ) -> Any:
        fields: dict[str, Any] = {"max_lifetime_ms": -1, **more}
        if owner:
            fields["owner_principal_type"], _, fields["owner_principal_name"] = owner.partition(":")
        parts = (renewer.partition(":") for renewer in renewers)
        fields["renewers"] = [CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in parts]
        token = self.wires[user].call(CreateDelegationTokenRequest(**fields), version)
        begin = token.issue_timestamp_ms
        lives = [it - begin if begin > 0 else it for it in (begin, token.expiry_timestamp_ms, token.max_timestamp_ms)]
        names = [token.principal_type, token.principal_name]
        if version >= 3:
            names += [token.token_requester_principal_type, token.token_requester_principal_name]
        self.note("create", token.error_code, *names, *lives, len(token.hmac), len(token.token_id))
        if not token.error_code:
            self._await_expiry(token.hmac, token.expiry_timestamp_ms)
        return token

    def renew(self, user: str, hmac: bytes, period_ms: int) -> None:
        answer = self.wires[user].call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)
        self.note("renew", answer.error_code, until(answer.expiry_timestamp_ms))
        if not answer.error_code:
            self._await_expiry(hmac, answer.expiry_timestamp_ms)

    def expire(self, user: str, hmac: bytes, period_ms: int) -> None:
        answer = self.wires[user].call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)
        self.note("expire", answer.error_code, until(answer.expiry_timestamp_ms))
        if not answer.error_code and period_ms >= 0:
            self._await_expiry(hmac, answer.expiry_timestamp_ms)

    def describe(self, user: str, *owners: str, version: int = 3) -> None:
        asked = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
        answer = self.wires[user].call(DescribeDelegationTokenRequest(owners=asked if owners else None), version)
        self.note("describe", answer.error_code, sorted(map(shown, answer.tokens)))

    def show(self, token_id: str, password: str, *then: Request) -> Wire | None:
        """Log in with a token."""
        wire = Wire(self.broker.bootstrap)
        exchange = sasl.begin("SCRAM-SHA-256", token_id, password, is_token=True)
        wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        answer = b""
        while message := exchange.step(answer):
            answered = wire.call(SaslAuthenticateRequest(auth_bytes=message), 2)
            answer = bytes(answered.auth_bytes)
            if answered.error_code:
                self.note("show", ErrorCode(answered.error_code).name)
                wire.close()
                return None
        self.note("show", answered.session_lifetime_ms // HOUR_MS)
        return wire

    def note(self, what: str, *found: Any) -> None:
        self.notes.append((len(self.notes), what, *found))

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()

    def _await_expiry(self, hmac: bytes, expiry_ms: int) -> None:
        """Kafka's brokers follow their controller a moment later."""
        deadline = time.monotonic() + 120
        everything = DescribeDelegationTokenRequest(owners=None)
        while (hmac, expiry_ms) not in (
            (it.hmac, it.expiry_timestamp) for it in self.wires["admin"].call(everything, 3).tokens
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def until(timestamp_ms: int) -> Any:
    """A moment in hours from now, rounded; as it is if it is none."""
    if timestamp_ms <= 0:
        return timestamp_ms
    left_ms = timestamp_ms - time.time() * 1000
    return "now" if abs(left_ms) < MOMENT_MS else round(left_ms / HOUR_MS)


def shown(token: Any) -> Any:
    renewers = sorted(f"{it.principal_type}:{it.principal_name}" for it in token.renewers)
    requester = getattr(token, "token_requester_principal_name", "")
    return token.principal_name, requester, renewers, len(token.hmac), until(token.max_timestamp)


def tell(story: Story) -> None:
    own = story.create("alice", renewers=("User:bob",))
    story.create("alice", renewers=("Robot:r2",))
    story.create("alice", max_lifetime_ms=HOUR_MS)
    story.create("bob", version=1)
    story.create("bob", owner="User:alice")
    story.create("admin", owner="User:alice", renewers=("User:carl", "User:carl"))
    for user in USERS:
        story.describe(user)
        story.describe(user, "alice")
        story.describe(user, "nobody", version=2)
    for user, hmac in (
        ("carl", own.hmac),
        ("alice", b"x"),
        ("alice", own.hmac),
        ("bob", own.hmac),
        ("admin", own.hmac),
    ):
        for period_ms in (HOUR_MS, 0, -1, 1 << 50):
            story.renew(user, hmac, period_ms)
    for user, period_ms in (("carl", HOUR_MS), ("bob", 2 * HOUR_MS), ("alice", 1 << 50)):
        story.expire(user, own.hmac, period_ms)
    rights = [("CREATE_TOKENS", AclResource.USER, "User:alice"), ("DESCRIBE_TOKENS", AclResource.USER, "User:a*")]
    creations = [entry("carl", *right) for right in rights]
    assert not any(it.error_code for it in story.wires["admin"].call(CreateAclsRequest(creations=creations), 3).results)
    deadline = time.monotonic() + 120
    while len(story.wires["carl"].call(DescribeDelegationTokenRequest(owners=None), 3).tokens) < 3:
        assert time.monotonic() < deadline
    story.create("carl", owner="User:alice")
    story.create("carl", owner="User:bob")
    story.describe("carl")
    password = b64encode(own.hmac).decode()
    worker = story.show(own.token_id, password)
    assert worker is not None
    with closing(worker):
        assert worker.call(MetadataRequest(topics=[]), 12).brokers
        for request, version in (
            (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
            (RenewDelegationTokenRequest(hmac=own.hmac, renew_period_ms=-1), 2),
            (ExpireDelegationTokenRequest(hmac=own.hmac, expiry_time_period_ms=-1), 2),
            (DescribeDelegationTokenRequest(owners=None), 3),
        ):
            answer = worker.call(request, version)
            story.note(type(request).__name__, answer.error_code, getattr(answer, "expiry_timestamp_ms", None))
    story.show(own.token_id, "wrong")
    story.expire("bob", own.hmac, -1)
    story.renew("alice", own.hmac, -1)


def test_both_answer_the_same(kafka: BrokerProcess, ottla: SecureOttla) -> None:
    notes = []
    for broker in (kafka, ottla):
        with closing(Story(broker)) as story:
            tell(story)
            notes.append(story.notes)
    different = [
        {"kafka": kafka_s, "ottla": ottla_s} for kafka_s, ottla_s in zip(*notes, strict=True) if kafka_s != ottla_s
    ]
    assert not different, "\n" + "\n".join(map(str, different))


def connecting(folder: Path, user: str) -> list[str]:
    path = folder / f"{user}.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} username="{user}" password="{user}-p";\n'
    )
    return ["--command-config", str(path)]


def test_kafka_delegation_tokens_and_java_s_clients(ottla: SecureOttla, tmp_path: Path) -> None:
    """The tool unchanged; then a producer and a consumer that know the token alone."""
    tools = JavaTools()
    common = ["--bootstrap-server", ottla.bootstrap, *connecting(tmp_path, "bob")]
    admin = ["-b", ottla.bootstrap, *connecting(tmp_path, "admin")]
    run_ottla("acl", "add", "bob", "all", "topic:*", "group:*", *admin)
    try:
        made = tools.run(
            "DelegationTokenCommand",
            *common,
            "--create",
            "--max-life-time-period",
            "-1",
            "--renewer-principal",
            "User:carl",
        )
        assert made.code == 0, made.err
        token_id, hmac = made.lines[-1][:2]
        listed = tools.run("DelegationTokenCommand", *common, "--describe", "--owner-principal", "User:bob")
        assert token_id in listed.out
        renewed = tools.run("DelegationTokenCommand", *common, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
        assert renewed.code == 0, renewed.err
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{token_id}" password="{hmac}" tokenauth="true";'
            ),
        }
        assert secure_clients.java(tools, tmp_path, ottla.bootstrap, "by-token", properties) == VALUE
        ended = tools.run("DelegationTokenCommand", *common, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert ended.code == 0, ended.err
        with pytest.raises(RefusedError, match="SaslAuthenticationException"):
            secure_clients.java(tools, tmp_path, ottla.bootstrap, "by-token", properties)
    finally:
        tools.close()


@pytest.mark.franz_go
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("kind", ["ottla", "kafka"])
def test_franz_go_with_a_token_alone(kind: str, mechanism: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker: BrokerProcess = request.getfixturevalue(kind)
    admin = ["-b", broker.bootstrap, *connecting(tmp_path, "admin")]
    run_ottla("acl", "add", "bob", "all", "topic:*", "group:*", *admin)
    with closing(Story(broker)) as story:
        token = story.create("bob")
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": token.token_id,
            "sasl.password": b64encode(token.hmac).decode(),
        }
        franz_go, topic = secure_clients.CLIENTS["franz-go"], f"by-token-{mechanism.lower()}"
        assert franz_go(broker.bootstrap, topic, {**properties, "tokenauth": "true"}) == VALUE
        # A token's id is no user, and a token that was ended opens nothing.
        with pytest.raises(RefusedError, match="SASL_AUTHENTICATION_FAILED"):
            franz_go(broker.bootstrap, topic, properties)
        story.expire("bob", token.hmac, -1)
        with pytest.raises(RefusedError, match="SASL_AUTHENTICATION_FAILED"):
            franz_go(broker.bootstrap, topic, {**properties, "tokenauth": "true"})

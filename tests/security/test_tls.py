"""Listeners that encrypt: certificates, who is let in by one, what goes wrong, and reading them anew."""

from __future__ import annotations

import os
import ssl
import threading
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.serialization import Encoding

from ottla.client.client import Client as BlockingClient
from ottla.client.errors import AuthenticationError, ClientError, ConnectionLostError, SecurityConfigError
from ottla.client.security import from_properties
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.records import Record, build_batch
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.security.certificates import Pair, issue, make_authority
from ottla.security.credentials import Credentials
from ottla.security.distinguished_name import PrincipalRules, RuleError, distinguished_name
from ottla.security.errors import NoRuleError
from ottla.security.listener_auth import listener_auth
from ottla.settings.config import BrokerConfig, ConfigError
from tests.servers import Client, RunningNode

HOST = "127.0.0.1"
# openssl pkcs12 -export with a key that openssl ecparam -name brainpoolP224r1 has made, and the password x.
_UNKNOWN_CURVE = """
MIID3AIBAzCCA5IGCSqGSIb3DQEHAaCCA4MEggN/MIIDezCCAkIGCSqGSIb3DQEHBqCCAjMwggIvAgEAMIICKAYJKoZIhvcNAQcBMFcGCSqGSI
b3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjyz+v4Dpvj3AICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEAlbPBGmxOstEvBNsZ+gL36A
ggHA0/oPcSsp+5dFL2M+cevwAHZDy3oz4buPh7K3cESBxaYrEm9tmWM4Q5HQ+kK1X0ix8rENse3eOLbtkrwA77dGMJU1ftB2uXa/vB92P/PMjE
Xa71n6wI8EAcMWlhBySSTG0XeIn8LsKb5V2P1E2nQgBFzED56tEJuXEyUyEc4ly5R0MMR1Xp1ufRyaxcWCm684/oeBtcIYf3jk+dK/RwFzBjpd
5tA54EzsHsFNRLNxL7n+czOnN+3nAB73OcjfIaj55ODHQv9fXe7Z6ltWHN2DjjT7IhDQvDQyIcyCaz7G+8DaVQEcH3iJajfXLNp9SgFbPsIEvn
L5vNljWdRl9E+vPf841N1wJ5cE1mXP1u7ubrAATMC0iKyrWrQiPp2CV5Ic3EObzcZp66Jq24cHJjqyyTHGSeqOsh/VuPqHrz0e95Kz42goY2Ch
UAqXp+zKRCqUrDEdwM6NE+epdcQiMUkH0Dz4ceamGn1hnOnZTBprBtvHViMIWrEnsHfVIfiqOsXXpME1OG+OssY7T5itv0d9awm8N3ihp3+404
SC8C9LYPD3Qcea3zJCcF01/U9gje7NWS3dztQSclez/lRWKazBiDCCATEGCSqGSIb3DQEHAaCCASIEggEeMIIBGjCCARYGCyqGSIb3DQEMCgEC
oIHfMIHcMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAj7GnpcPfWhdQICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEE9ecD
c5w0B53WfZAU5Q/2UEgYDdvFB8Rgdv/5FQci9XU+VYtflWyqEymxvtg+sXCd2AcuwoNsQWN+coO/XJLdxFv48lAJUp+7m0GaBvJkhKzuyGP1Zd
ieFw5ZURVdFu08hyGNtSB/TzA1UJi+ofqvXtJjQAaZU6ohnyVccsej7EW1J0pKuRzG20uI6MdyS8DH856zElMCMGCSqGSIb3DQEJFTEWBBSUcD
Bswkvs0KSvZaqPEQpfbDwJUDBBMDEwDQYJYIZIAWUDBAIBBQAEIBMXz+Hd/1pnDZQC0bjOgRXo1CQSP/AYvy8WZOLnriTEBAh/sn1BTugJ3AIC
CAA=
"""


class Certificates:
    """An authority, and files of what it has signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = make_authority("Test CA")
        self.ca = self.written("ca", self.authority.certificate)
        self.server = self.signed("server", "CN=broker,O=Ottla", [HOST, "localhost"])

    def signed(self, file: str, name: str, hosts: list[str] | None = None, days: int = 1) -> str:
        """A file with key and certificate."""
        return self.written(file, b"".join(issue(self.authority, name, hosts or [], days)))

    def written(self, file: str, data: bytes) -> str:
        path = self.folder / f"{file}.pem"
        path.write_bytes(data)
        return str(path)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def serve_tls(serve_node: Callable[..., Any], certificates: Certificates) -> Callable[..., Any]:
    @asynccontextmanager
    async def serve(settings: Mapping[str, str] | None = None) -> AsyncIterator[RunningNode]:
        given = {
            "listeners": f"SSL://{HOST}:0",
            "ssl.keystore.location": certificates.server,
            "ssl.truststore.location": certificates.ca,
            **(settings or {}),
        }
        async with serve_node(given) as node:
            yield node

    return serve


def properties(certificates: Certificates, **others: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {"security.protocol": "SSL", "ssl.ca.location": certificates.ca, **named}


def context(certificates: Certificates, key: str | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=certificates.ca)
    if key is not None:
        made.load_cert_chain(key)
    return made


async def connect(node: RunningNode, made: ssl.SSLContext) -> Client:
    stream = trio.SSLStream(await trio.open_tcp_stream(HOST, node.port), made, server_hostname=HOST)
    client = Client(stream)  # type: ignore[arg-type]
    node.clients.append(client)
    return client


async def brokers(node: RunningNode, given: Mapping[str, str]) -> int:
    """How many brokers a blocking client is told of."""

    def ask() -> int:
        with BlockingClient([(HOST, node.port)], 5, security=from_properties(given)) as client:
            return len(client.metadata([]).brokers)

    return await trio.to_thread.run_sync(ask)


async def test_a_broker_that_stops_says_goodbye(serve_tls: Callable[..., Any], certificates: Certificates) -> None:
    async with serve_tls() as node:
        stream = trio.SSLStream(
            await trio.open_tcp_stream(HOST, node.port), context(certificates), server_hostname=HOST
        )
        await stream.do_handshake()
        node.node.stop()
        with trio.fail_after(10):
            assert await stream.receive_some() == b""  # and no alert, which would be an error
        await trio.aclose_forcefully(stream)


async def test_clients_are_served(serve_tls: Callable[..., Any], certificates: Certificates) -> None:
    async with serve_tls() as node:
        assert await brokers(node, properties(certificates)) == 1
        connection = TrioConnection(HOST, node.port, client_id="t", security=from_properties(properties(certificates)))
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run)
            assert len((await connection.call(MetadataRequest(topics=[]))).brokers) == 1
            connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_much_goes_both_ways(
    serve_tls: Callable[..., Any], certificates: Certificates, version: ssl.TLSVersion
) -> None:
    """More than the buffers of both sides hold, in requests and in an answer."""
    made = context(certificates)
    made.maximum_version = version
    async with serve_tls({"message.max.bytes": "4000000"}) as node:
        await node.create_topic("t")
        client = await connect(node, made)
        values = [os.urandom(700_000) for _ in range(4)]
        batch = build_batch([Record(value=value, timestamp_ms=1) for value in values])
        partition = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
        )
        for _ in range(2):
            answer = await client.call(request, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])])
        fetched = await client.call(fetch, 12)
        records = bytes(fetched.responses[0].partitions[0].records)
        # The broker writes offset and epoch in front of the checksum.
        assert [records[21 : len(batch)], records[len(batch) + 21 :]] == [batch[21:]] * 2


async def test_an_answer_under_way_is_encrypted_to_its_end_at_a_stop(
    serve_tls: Callable[..., Any], certificates: Certificates
) -> None:
    async with serve_tls() as node:
        await node.create_topic("t")
        client = await connect(node, context(certificates))
        await client.call(MetadataRequest(topics=[]), 9)
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])])
        await client.send(fetch, 12)
        while not node.broker.replica_manager.fetch_purgatory.watched_keys:
            await trio.lowlevel.checkpoint()
        node.node.stop()
        _, answer = await client.receive(fetch.API_KEY, 12)
        assert answer.responses[0].partitions[0].error_code == 0


class TestRefusals:
    async def test_an_authority_that_is_not_trusted(
        self, serve_tls: Callable[..., Any], certificates: Certificates
    ) -> None:
        other = certificates.written("other-ca", make_authority("Other").certificate)
        async with serve_tls() as node:
            with pytest.raises(AuthenticationError, match="is not trusted"):
                await brokers(node, properties(certificates, ssl_ca_location=other))
            assert await brokers(node, properties(certificates)) == 1

    async def test_another_host(self, serve_tls: Callable[..., Any], certificates: Certificates) -> None:
        elsewhere = certificates.signed("elsewhere", "elsewhere", ["elsewhere.example"])
        async with serve_tls({"ssl.keystore.location": elsewhere}) as node:
            with pytest.raises(AuthenticationError, match="is not trusted"):
                await brokers(node, properties(certificates))
            unchecked = properties(certificates, ssl_endpoint_identification_algorithm="")
            assert await brokers(node, unchecked) == 1

    async def test_an_expired_certificate(self, serve_tls: Callable[..., Any], certificates: Certificates) -> None:
        expired = certificates.signed("expired", "broker", [HOST], days=0)
        async with serve_tls({"ssl.keystore.location": expired}) as node:
            with pytest.raises(AuthenticationError, match="expired"):
                await brokers(node, properties(certificates))

    async def test_plain_text_on_an_encrypted_port(
        self, serve_tls: Callable[..., Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serve_tls() as node:
            client = await node.connect()
            await client.send(MetadataRequest(topics=[]), 9)
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await client.receive_frame()
        assert "use security.protocol=SSL" in caplog.text

    async def test_tls_on_a_plain_port(self, serve_node: Callable[..., Any], certificates: Certificates) -> None:
        async with serve_node() as node:
            with pytest.raises(ConnectionLostError, match="no TLS connection"):
                await brokers(node, properties(certificates))

    async def test_who_never_ends_the_handshake_is_sent_away(self, serve_tls: Callable[..., Any]) -> None:
        async with serve_tls() as node:
            listeners = node.broker.listeners
            (asked,) = listeners._listener_auths.values()
            listeners.set_listener_auths({"SSL": asked._replace(handshake_seconds=0.05)})
            client = await node.connect()
            await client.stream.send_all(b"\x16\x03\x01")
            assert await client.is_closed()

    @pytest.mark.parametrize("cut", [1, 100, 200])
    async def test_a_handshake_that_breaks_off(
        self, serve_tls: Callable[..., Any], certificates: Certificates, cut: int
    ) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        begun = context(certificates).wrap_bio(incoming, outgoing, server_hostname=HOST)
        with pytest.raises(ssl.SSLWantReadError):
            begun.do_handshake()
        async with serve_tls() as node:
            client = await node.connect()
            await client.stream.send_all(outgoing.read()[:cut])
            await client.stream.aclose()
            assert await brokers(node, properties(certificates)) == 1

    async def test_old_protocols_are_not_spoken(
        self, serve_tls: Callable[..., Any], certificates: Certificates
    ) -> None:
        made = context(certificates)
        made.maximum_version = ssl.TLSVersion.TLSv1_2
        async with serve_tls({"ssl.enabled.protocols": "TLSv1.3"}) as node:
            with pytest.raises(trio.BrokenResourceError):
                await (await connect(node, made)).call(MetadataRequest(topics=[]), 9)


class TestClientCertificates:
    async def principal(self, node: RunningNode, client: Client) -> str:
        await client.call(MetadataRequest(topics=[]), 9)
        listeners: Any = node.broker.listeners
        (connection,) = listeners._connections
        return str(connection.client.principal)

    async def test_it_says_who_the_client_is(self, serve_tls: Callable[..., Any], certificates: Certificates) -> None:
        alice = certificates.signed("alice", "CN=alice,OU=people,O=Ottla")
        async with serve_tls({"ssl.client.auth": "required"}) as node:
            client = await connect(node, context(certificates, alice))
            assert await self.principal(node, client) == "User:CN=alice,OU=people,O=Ottla"

    async def test_rules_make_it_short(self, serve_tls: Callable[..., Any], certificates: Certificates) -> None:
        alice = certificates.signed("alice", "CN=Alice,OU=people,O=Ottla")
        rules = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT"}
        async with serve_tls(rules) as node:
            client = await connect(node, context(certificates, alice))
            assert await self.principal(node, client) == "User:alice"

    async def test_where_no_rule_fits_the_connection_is_closed(
        self, serve_tls: Callable[..., Any], certificates: Certificates
    ) -> None:
        alice = certificates.signed("alice", "alice")
        rules = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=x$/y/"}
        async with serve_tls(rules) as node:
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await (await connect(node, context(certificates, alice))).call(MetadataRequest(topics=[]), 9)

    async def test_it_may_be_left_out_where_it_is_only_requested(
        self, serve_tls: Callable[..., Any], certificates: Certificates
    ) -> None:
        async with serve_tls({"ssl.client.auth": "requested"}) as node:
            assert await self.principal(node, await connect(node, context(certificates))) == "User:ANONYMOUS"

    @pytest.mark.parametrize("signed", [False, True])
    async def test_without_one_that_is_trusted_nobody_is_let_in(
        self, serve_tls: Callable[..., Any], certificates: Certificates, *, signed: bool
    ) -> None:
        other = certificates.written("stranger", b"".join(issue(make_authority("Other"), "stranger")))
        async with serve_tls({"ssl.client.auth": "required"}) as node:
            client = await connect(node, context(certificates, other if signed else None))
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await client.call(MetadataRequest(topics=[]), 9)

    async def test_with_sasl_it_counts_only_where_the_listener_asks_itself(
        self, serve_node: Callable[..., Any], certificates: Certificates
    ) -> None:
        settings = {
            "listeners": f"SASL_SSL://{HOST}:0",
            "ssl.keystore.location": certificates.server,
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": 'PlainLoginModule required user_bob="b-secret";',
        }
        bob = properties(certificates, security_protocol="SASL_SSL", sasl_username="bob", sasl_password="b-secret")
        async with serve_node(settings) as node:
            assert await brokers(node, bob | {"sasl.mechanism": "PLAIN"}) == 1
        async with serve_node(settings | {"listener.name.sasl_ssl.ssl.client.auth": "required"}) as node:
            with pytest.raises(ClientError):
                await brokers(node, bob | {"sasl.mechanism": "PLAIN"})


class TestReadingAnew:
    async def test_new_connections_get_the_new_certificate_and_old_ones_stay(
        self, serve_tls: Callable[..., Any], certificates: Certificates, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from ottla.server.network import listener_security

        monkeypatch.setattr(listener_security.ListenerSecurity.run, "__defaults__", (0.01,))
        replaced = certificates.signed("replaced", "CN=first", [HOST])

        async def served_by() -> tuple[Client, str]:
            client = await connect(node, context(certificates))
            await client.call(MetadataRequest(topics=[]), 9)
            subject = client.stream.getpeercert()["subject"]  # type: ignore[attr-defined]
            return client, distinguished_name(subject)

        async with serve_tls({"ssl.keystore.location": replaced}) as node:
            old, name = await served_by()
            assert name == "CN=first"
            certificates.written("replaced", b"in the middle of being written")
            certificates.signed("replaced", "CN=second", [HOST])
            with trio.fail_after(10):
                while name != "CN=second":
                    _, name = await served_by()
            assert (await old.call(MetadataRequest(topics=[]), 9)).brokers

    async def test_what_could_not_be_read_is_read_again_though_its_file_stays(
        self,
        serve_tls: Callable[..., Any],
        certificates: Certificates,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        from ottla.server.network import listener_security

        monkeypatch.setattr(listener_security.ListenerSecurity.run, "__defaults__", (0.01,))
        listener_auths, failures = listener_security.listener_auths, 0

        def without_descriptors(*arguments: Any) -> Any:
            nonlocal failures
            failures += 1
            if failures < 4:
                raise ConfigError("ssl.keystore.location cannot be read: Too many open files.")
            return listener_auths(*arguments)

        async with serve_tls({"ssl.keystore.location": certificates.signed("unread", "CN=first", [HOST])}) as node:
            monkeypatch.setattr(listener_security, "listener_auths", without_descriptors)
            certificates.signed("unread", "CN=second", [HOST])
            name = ""
            with trio.fail_after(10):
                while name != "CN=second":
                    client = await connect(node, context(certificates))
                    await client.call(MetadataRequest(topics=[]), 9)
                    name = distinguished_name(client.stream.getpeercert()["subject"])  # type: ignore[attr-defined]
        assert sum("keep their certificates" in it.getMessage() for it in caplog.records) == 1

    async def test_files_that_never_come_hold_up_neither_the_metadata_nor_a_stop(
        self,
        serve_tls: Callable[..., Any],
        certificates: Certificates,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        from ottla.server.network.listener_security import ListenerSecurity

        test_is_over, was_waited_for = threading.Event(), threading.Event()

        def never(_: ListenerSecurity) -> Any:
            if not test_is_over.wait(60):
                was_waited_for.set()
            raise ConfigError("it has not come")

        try:
            with trio.fail_after(30):
                async with serve_tls({"ssl.keystore.location": certificates.signed("a", "CN=first", [HOST])}) as node:
                    monkeypatch.setattr(ListenerSecurity, "_listener_auths", never)
                    change = ConfigChange("message.max.bytes", ConfigOperation.SET, "100000")
                    brokers = ConfigResource(ResourceType.BROKER, "")
                    assert await node.broker.controller.alter_configs({brokers: [change]}) == {brokers: None}
                    await node.create_topic("t")
                    client = await connect(node, context(certificates))
                    await client.call(MetadataRequest(topics=[]), 9)
            assert not was_waited_for.is_set()
            assert "keep their settings until the files" in caplog.text
        finally:
            test_is_over.set()


class TestSettings:
    def context(self, settings: Mapping[str, str]) -> ssl.SSLContext:
        made = listener_auth(BrokerConfig(settings), "SSL", "SSL", Credentials(dict)).tls
        assert made is not None
        return made

    def test_texts_instead_of_files(self, certificates: Certificates) -> None:
        pair = issue(certificates.authority, "inline", [HOST])
        made = self.context(
            {
                "ssl.keystore.key": pair.key.decode(),
                "ssl.keystore.certificate.chain": pair.certificate.decode(),
                "ssl.truststore.certificates": certificates.authority.certificate.decode(),
            }
        )
        assert len(made.get_ca_certs()) == 1

    def test_a_key_with_a_password(self, certificates: Certificates) -> None:
        location = certificates.written("locked", _locked(issue(certificates.authority, "locked", [HOST]), b"key-pass"))
        self.context({"ssl.keystore.location": location, "ssl.key.password": "key-pass"})
        for wrong in ({}, {"ssl.key.password": "wrong-pass"}):
            with pytest.raises(ConfigError, match="cannot be used as key") as caught:
                self.context({"ssl.keystore.location": location, **wrong})
            assert "wrong-pass" not in str(caught.value)

    def test_pkcs12_with_a_key_of_an_unknown_kind(self, certificates: Certificates) -> None:
        """It must not end a broker that reads its certificates anew."""
        location = str(certificates.folder / "unknown.p12")
        Path(location).write_bytes(b64decode(_UNKNOWN_CURVE))
        with pytest.raises(ConfigError, match=r"Curve .* is not supported"):
            self.context({"ssl.keystore.location": location, "ssl.keystore.password": "x"})

    def test_pkcs12(self, certificates: Certificates) -> None:
        pair = issue(certificates.authority, "p12", [HOST])
        location = str(certificates.folder / "store.p12")
        Path(location).write_bytes(_pkcs12(pair, certificates.authority, b"store-pass"))
        made = self.context(
            {
                "ssl.keystore.location": location,
                "ssl.keystore.password": "store-pass",
                "ssl.truststore.location": location,
                "ssl.truststore.password": "store-pass",
            }
        )
        assert len(made.get_ca_certs()) == 1
        with pytest.raises(ConfigError, match="neither PEM nor PKCS12"):
            self.context({"ssl.keystore.location": location, "ssl.keystore.password": "wrong"})

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({}, "needs a certificate"),
            ({"ssl.keystore.location": "/nowhere"}, "No such file"),
            ({"ssl.keystore.location": "{jks}"}, "keytool -importkeystore"),
            ({"ssl.keystore.location": "{ca}"}, "cannot be used as key"),
            ({"ssl.keystore.location": "{server}", "ssl.truststore.location": "/nowhere"}, "cannot be read"),
            ({"ssl.keystore.location": "{server}", "ssl.enabled.protocols": "TLSv1.1"}, "served are TLSv1.2, TLSv1.3"),
            ({"ssl.keystore.location": "{server}", "ssl.cipher.suites": "NONSENSE"}, "none that OpenSSL knows"),
            ({"ssl.keystore.location": "{server}", "ssl.principal.mapping.rules": "RULE:(/x/"}, "is not a rule"),
        ],
    )
    def test_what_is_wrong(self, certificates: Certificates, settings: dict[str, str], words: str) -> None:
        jks = certificates.folder / "store.jks"
        jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
        places = {"jks": str(jks), "ca": certificates.ca, "server": certificates.server}
        with pytest.raises(ConfigError, match=words):
            self.context({name: value.format_map(places) for name, value in settings.items()})

    def test_ciphers_by_javas_names(self, certificates: Certificates) -> None:
        suites = "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,ECDHE-ECDSA-AES256-GCM-SHA384"
        made = self.context({"ssl.keystore.location": certificates.server, "ssl.cipher.suites": suites})
        older = {it["name"] for it in made.get_ciphers() if it["protocol"] == "TLSv1.2"}
        assert older == {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"}

    def test_a_clients_files_that_are_no_pem(self, certificates: Certificates, tmp_path: Path) -> None:
        store = tmp_path / "store.jks"
        store.write_bytes(b"\xfe\xed\xfe\xed")
        with pytest.raises(SecurityConfigError, match="is not PEM"):
            from_properties(properties(certificates, ssl_ca_location=str(store)))


class TestNames:
    """As Java's X500Principal.getName has them, and Kafka's SslPrincipalMapperTest."""

    @pytest.mark.parametrize(
        ("subject", "name"),
        [
            (
                [[("countryName", "DE")], [("organizationName", "O, Inc.")], [("commonName", "a")]],
                r"CN=a,O=O\, Inc.,C=DE",
            ),
            ([[("commonName", ' a"b+c ')]], r"CN=\ a\"b\+c\ "),
            ([[("commonName", "#1")]], r"CN=\#1"),
            ([[("emailAddress", "a@b")], [("commonName", "x")]], "CN=x,1.2.840.113549.1.9.1=#1603614062"),
            ([[("emailAddress", "a" * 128)]], f"1.2.840.113549.1.9.1=#168180{'61' * 128}"),
            ([[("commonName", "x"), ("userId", "7")]], "CN=x+UID=7"),
        ],
    )
    def test_distinguished_names(self, subject: Any, name: str) -> None:
        assert distinguished_name(subject) == name

    def test_the_rules_of_kafkas_own_test(self) -> None:
        rules = PrincipalRules(
            "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
            "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
        )
        assert rules.user("CN=Duke,OU=ServiceUsers,O=Org,C=US") == "duke"
        assert rules.user("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US") == "duke@sme"
        assert rules.user("cn=duke,ou=sme,dc=mycp,dc=com") == "DUKE@SME"
        assert rules.user("cN=duke,OU=JavaSoft,O=Sun Microsystems") == "DUKE"
        assert rules.user("OU=JavaSoft,O=Sun Microsystems,C=US") == "OU=JavaSoft,O=Sun Microsystems,C=US"

    @pytest.mark.parametrize("text", ["nonsense", "RULE:^x$/y", "RULE:(/x/", "DEFAULT/L", "RULE:x/$7/", "default"])
    def test_rules_that_cannot_be_read(self, text: str) -> None:
        with pytest.raises(RuleError):
            PrincipalRules(text)

    def test_no_rule_fits(self) -> None:
        with pytest.raises(NoRuleError):
            PrincipalRules("RULE:^CN=(.*)$/$1/").user("O=x")


def _locked(pair: Pair, password: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(pair.key, None)
    locked: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
    return locked + pair.certificate


def _pkcs12(pair: Pair, authority: Pair, password: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
    from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
    from cryptography.x509 import load_pem_x509_certificate

    key: Any = load_pem_private_key(pair.key, None)
    chain = [load_pem_x509_certificate(authority.certificate)]
    store: bytes = serialize_key_and_certificates(
        b"broker", key, load_pem_x509_certificate(pair.certificate), chain, BestAvailableEncryption(password)
    )
    return store


def revoked(authority: Pair, *pairs: Pair, days: int = 1) -> bytes:
    """An authority's list of certificates that are good no more."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder(
        x509.load_pem_x509_certificate(authority.certificate).subject, now - timedelta(2), now + timedelta(days)
    )
    for pair in pairs:
        number = x509.load_pem_x509_certificate(pair.certificate).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now - timedelta(1)).build()
        builder = builder.add_revoked_certificate(entry)
    key: Any = load_pem_private_key(authority.key, None)
    made: bytes = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    return made


@pytest.mark.parametrize(("days", "is_let_in"), [(1, True), (-1, False)])
async def test_who_is_on_the_list_of_the_revoked_is_not_let_in(
    serve_tls: Callable[..., Any],
    certificates: Certificates,
    days: int,
    is_let_in: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    authority = certificates.authority
    alice, eve = issue(authority, "CN=alice", [], 1), issue(authority, "CN=eve", [], 1)
    store = certificates.written("with-list", authority.certificate + revoked(authority, eve, days=days))
    async with serve_tls({"ssl.truststore.location": store, "listener.name.ssl.ssl.client.auth": "required"}) as node:
        shown = [certificates.written(name, b"".join(pair)) for name, pair in (("alice", alice), ("eve", eve))]
        if is_let_in:
            assert await brokers(node, properties(certificates, ssl_keystore_location=shown[0])) == 1
        for location in shown[is_let_in:]:
            with pytest.raises(ClientError):
                await brokers(node, properties(certificates, ssl_keystore_location=location))
    assert ("certificate revoked" if is_let_in else "CRL has expired") in caplog.text

"""Whatever a client sets on a running broker, who could connect can connect, then and after a restart."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.metadata import keys
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import Put
from ottla.settings.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
)
from ottla.settings.declaration import Setting, Update
from ottla.settings.dynamic import usable
from tests.servers import Client, RunningNode
from tests.setting_values import dynamic_settings, values

BROKER: Final = 4
SET, DELETE = 0, 1
REFUSALS: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)


def changing(
    resource: str, name: str, value: str | None, operation: int = SET, *, type_: int = BROKER
) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=name, config_operation=operation, value=value)]
    asked = AlterConfigsResource(resource_type=type_, resource_name=resource, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[asked])


async def change(client: Client, resource: str, name: str, value: str | None, operation: int = SET) -> tuple[int, str]:
    (answer,) = (await client.call(changing(resource, name, value, operation), 1)).responses
    return answer.error_code, answer.error_message or ""


async def value_of(client: Client, name: str) -> Any:
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=[name])
    (result,) = (await client.call(DescribeConfigsRequest(resources=[asked]), 4)).results
    return result.configs[0].value


async def administrator(node: RunningNode, earlier: Client | None = None) -> Client:
    """One who has no other connection, as `max.connections=1` allows, and who is answered."""
    if earlier is not None:
        await earlier.stream.aclose()
    client = await node.connect()
    assert (await client.call(MetadataRequest(topics=[]), 12)).controller_id == 1
    return client


async def test_no_value_of_any_setting_locks_anybody_out(serve_node: Any) -> None:
    """Each round gives every setting another value on the folder of the round before, and ends with a restart."""
    table = {name: values(BROKER_SETTINGS[name]) for name in dynamic_settings()}
    rng = random.Random(1)
    taken = 0
    for number in range(max(map(len, table.values())) + 1):
        async with serve_node() as node:
            client = await administrator(node)
            asked = [(name, row[number]) for name, row in table.items() if number < len(row)]
            for name, value in asked:
                of_all = BROKER_SETTINGS[name].update is Update.CLUSTER_WIDE and rng.random() < 0.5
                await client.send(changing("" if of_all else "1", name, value), 1)
            for name, value in asked:
                _, answer = await client.receive(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
                code = answer.responses[0].error_code
                assert code == ErrorCode.NONE or code in REFUSALS, (name, value, code)
                taken += code == ErrorCode.NONE
            client = await administrator(node, client)
    assert taken > len(table)


@pytest.mark.parametrize("seed", range(3))
async def test_no_values_together_lock_anybody_out(seed: int, serve_node: Any) -> None:
    """Single settings of this broker and of all brokers, set and removed in any order: what suits what was there."""
    rng = random.Random(seed)
    # Limits by address are what somebody asks for by name: with them max.connections.per.ip may be 0 for all others.
    names = [name for name in dynamic_settings() if name != "max.connections.per.ip.overrides"]
    for _ in range(3):
        async with serve_node() as node:
            client = await administrator(node)
            for _ in range(60):
                name = rng.choice(names)
                operation = rng.choice((SET, SET, DELETE))
                value = rng.choice(values(BROKER_SETTINGS[name])) if operation == SET else None
                await change(client, rng.choice(("1", "")), name, value, operation)
            await administrator(node, client)


@pytest.mark.parametrize(
    ("type_", "settings"),
    [(2, TOPIC_SETTINGS), (32, GROUP_SETTINGS), (16, CLIENT_METRICS_SETTINGS)],
    ids=["topic", "group", "client metrics"],
)
async def test_no_value_of_anything_else_ends_the_node(
    type_: int, settings: Mapping[str, Setting], serve_node: Any
) -> None:
    """All values of all settings, each upon those before it; what is in force is used, also after a restart."""
    async with serve_node() as node:
        await node.create_topic("t", 2)
        client = await administrator(node)
        asked = [(name, value) for name, setting in settings.items() for value in values(setting)]
        for name, value in asked:
            await client.send(changing("t", name, value, type_=type_), 1)
        taken = 0
        for name, value in asked:
            _, answer = await client.receive(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
            code = answer.responses[0].error_code
            assert code == ErrorCode.NONE or code in REFUSALS, (name, value, code)
            taken += code == ErrorCode.NONE
        assert taken > len(settings)
        await node.broker.log_manager.clean()
        await administrator(node, client)
    async with serve_node() as node:
        await node.broker.log_manager.clean()
        await administrator(node)


async def test_no_setting_of_a_new_topic_ends_the_node(serve_node: Any) -> None:
    """Each of its settings with each value, in topics of their own; they are there after a restart."""
    made = [
        CreatableTopic(
            name=f"t-{number}",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=name, value=value)],
        )
        for number, (name, value) in enumerate(
            (name, value) for name, setting in TOPIC_SETTINGS.items() for value in values(setting)
        )
    ]
    async with serve_node() as node:
        client = await administrator(node)
        answers = (await client.call(CreateTopicsRequest(topics=made, timeout_ms=60_000), 7)).topics
        codes = Counter(answer.error_code for answer in answers)
        assert codes.keys() <= {ErrorCode.NONE, *REFUSALS}
        await administrator(node, client)
    async with serve_node() as node:
        client = await administrator(node)
        assert len((await client.call(MetadataRequest(topics=None), 12)).topics) == codes[ErrorCode.NONE]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "nonsense"),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("listener.security.protocol.map", "PLAINTEXT:SSL"),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:1"),
        ("max.connections", "0"),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "10.0.0.1:0"),
        ("max.connection.creation.rate", "0"),
        ("listener.name.plaintext.max.connections", "0"),
        ("listener.name.plaintext.max.connection.creation.rate", "0"),
    ],
)
async def test_what_would_let_nobody_in_is_refused(name: str, value: str, serve_node: Any) -> None:
    async with serve_node() as node:
        if name.endswith("overrides"):
            some = await administrator(node)
            assert await change(some, "1", name, "127.0.0.1:5") == (ErrorCode.NONE, "")
            assert await change(some, "1", "max.connections.per.ip", "0") == (ErrorCode.NONE, "")
        client = await administrator(node)
        before = await value_of(client, name) if name in BROKER_SETTINGS else None
        code, message = await change(client, "1", name, value)
        assert code == ErrorCode.INVALID_REQUEST
        assert name.removeprefix("listener.name.plaintext.") in message
        if name in BROKER_SETTINGS:
            assert await value_of(client, name) == before


STORED: Final = {
    "listeners": "nonsense",
    "max.connections": "0",
    "max.connections.per.ip": "many",
    "max.connections.per.ip.overrides": "everybody",
    "log.cleaner.threads": "0",
    "no.such.setting": "x",
    "ssl.keystore.location": "/nowhere",
    "log.segment.bytes": "2000000",
}


@pytest.mark.parametrize("resource", ["1", ""])
async def test_a_stored_value_that_cannot_be_used_ends_no_start(
    resource: str, serve_node: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_node() as node:
        await node.create_topic("t")
    topic_key = keys.topic("t")
    store = await open_sqlite_store(tmp_path / "cluster.sqlite", lambda: 0)
    topic = await store.get(topic_key)
    assert topic is not None
    topic_id, replicas, _ = keys.decode_topic(topic.value)
    stored = keys.configs(ConfigResource(ResourceType.BROKER, resource))
    configs = {"retention.ms": "long", "cleanup.policy": "shred", "segment.bytes": "3000000"}
    configs |= {"min.insync.replicas": "few", "ottla.mirror": "nobody"}
    await store.commit(
        (), (Put(stored, keys.encode(STORED)), Put(topic_key, keys.encode_topic(topic_id, replicas, configs)))
    )
    await store.close()
    with caplog.at_level(logging.WARNING):
        async with serve_node() as node:
            client = await administrator(node)
            # What can be used is used; the rest is as if it were not set.
            assert await value_of(client, "log.segment.bytes") == "2000000"
            assert await value_of(client, "max.connections") == "2147483647"
            own = node.broker.config.topic_config(node.broker.metadata.topics["t"].configs)
            assert (own.segment_bytes, own.retention_ms, own.cleanup_policy) == (3_000_000, 604_800_000, ("delete",))
            # It stands in nobody's way, and goes as the log says.
            assert await change(client, resource, "log.retention.bytes", "5") == (ErrorCode.NONE, "")
            for name in STORED:
                assert await change(client, resource, name, None, DELETE) == (ErrorCode.NONE, "")
    told = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
    for name in STORED.keys() - {"log.segment.bytes"}:
        assert sum(f"the setting {name} of broker" in line for line in told) == 1, told
    assert any("the setting retention.ms of topic t" in line for line in told)


def test_of_stored_values_that_do_not_suit_each_other_only_one_is_left_out() -> None:
    static = BrokerConfig({"log.cleaner.dedupe.buffer.size": "4194304"})
    buffer = {"log.cleaner.dedupe.buffer.size": "1048577"}
    own, of_all, left_out = usable(static, 1, {"log.cleaner.threads": "2"}, buffer)
    assert (own, of_all) == ({}, buffer)
    assert [(it.broker, it.name) for it in left_out] == [("1", "log.cleaner.threads")]


SECURE: Final = "listener.name.secure."
JAAS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
#: What a listener that encrypts and asks for passwords cannot be given; each alone, without its prefix.
UNUSABLE: Final = [
    ("ssl.keystore.location", "/nowhere.pem"),
    ("ssl.keystore.location", "{folder}/text"),
    ("ssl.keystore.location", ""),
    ("ssl.keystore.key", "no key"),
    ("ssl.keystore.certificate.chain", "no certificate"),
    ("ssl.truststore.location", "/nowhere.pem"),
    ("ssl.truststore.certificates", "no certificates"),
    ("ssl.enabled.protocols", "SSLv9"),
    ("ssl.cipher.suites", "FOO"),
    ("ssl.client.auth", "perhaps"),
    ("sasl.enabled.mechanisms", "FOO"),
    ("sasl.enabled.mechanisms", ""),
    ("plain.sasl.jaas.config", "nonsense"),
    ("plain.sasl.jaas.config", "a.B required;"),
]


@pytest.mark.parametrize(("name", "value"), UNUSABLE)
async def test_a_listener_is_not_told_what_it_cannot_use(
    name: str, value: str, serve_node: Any, tmp_path: Path
) -> None:
    """It is answered, not stored for the next start to find, and the old ones stay in use (see test_wire_settings)."""
    certificates = pytest.importorskip("ottla.security.certificates")
    authority = certificates.make_authority("Test CA")
    (tmp_path / "node.pem").write_bytes(b"".join(certificates.issue(authority, "CN=broker", ["127.0.0.1"], 1)))
    (tmp_path / "text").write_text("no keystore\n")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        f"{SECURE}ssl.keystore.location": str(tmp_path / "node.pem"),
        f"{SECURE}sasl.enabled.mechanisms": "PLAIN",
        f"{SECURE}plain.sasl.jaas.config": JAAS,
    }
    value = value.format(folder=tmp_path) if "{" in value else value
    async with serve_node(settings, data_dir=tmp_path / "data") as node:
        client = await administrator(node)
        code, message = await change(client, "1", SECURE + name, value)
        assert code == ErrorCode.INVALID_REQUEST
        assert message
        assert not node.broker.metadata.resource_configs(ConfigResource(ResourceType.BROKER, "1"))
        # What is used now can be set, and something else while a file is not there.
        assert await change(client, "1", f"{SECURE}plain.sasl.jaas.config", JAAS) == (ErrorCode.NONE, "")
        (tmp_path / "node.pem").unlink()
        assert await change(client, "1", "log.retention.ms", "5") == (ErrorCode.NONE, "")

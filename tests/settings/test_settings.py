"""The declared table: its values, their types and ranges, and the views that read them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.settings.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    GroupConfig,
    InvalidSettingError,
    TopicConfig,
)
from ottla.settings.declaration import Setting
from ottla.settings.storage import log_config, storage_config
from ottla.settings.types import SettingType
from ottla.storage.config import LogConfig, StorageConfig
from tests.rooms import BROKER, ROOT, sources

TABLES = {
    "broker": BROKER_SETTINGS,
    "topic": TOPIC_SETTINGS,
    "group": GROUP_SETTINGS,
    "client metrics": CLIENT_METRICS_SETTINGS,
}
NOT_TEXT = (SettingType.BOOLEAN, SettingType.INT, SettingType.SHORT, SettingType.LONG, SettingType.DOUBLE)
ALL = [
    pytest.param(setting, id=f"{kind} {name}")
    for kind, settings in TABLES.items()
    for name, setting in settings.items()
]


@pytest.mark.parametrize("setting", ALL)
def test_every_default_is_a_value_that_the_setting_takes(setting: Setting) -> None:
    if setting.default is not None:
        text = setting.to_text(setting.default)
        assert text is not None
        assert setting.parse(text) == setting.default


@pytest.mark.parametrize("setting", ALL)
def test_every_setting_has_a_sentence(setting: Setting) -> None:
    assert setting.doc.endswith(".")
    assert setting.doc[0].isupper() or setting.doc.startswith(("host:port", "delete ", "https ", "CreateTime"))


_NUMBERS_AND_FLAGS = [it for it in ALL if getattr(it.values[0], "type", None) in NOT_TEXT]


@pytest.mark.parametrize("setting", _NUMBERS_AND_FLAGS)
def test_wrong_text_is_refused_with_the_settings_name(setting: Setting) -> None:
    for text in ("", "nonsense", "0x10", "1_000", "\u0661", "1e3x", "--1", "nan"):
        with pytest.raises(InvalidSettingError, match=f"for configuration {setting.name}"):
            setting.parse(text)


@pytest.mark.parametrize(
    ("table", "name", "text", "reason"),
    [
        ("topic", "retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("topic", "retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("topic", "segment.bytes", "9999999999", "Not a number of type INT"),
        (
            "topic",
            "cleanup.policy",
            "delete,x",
            "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("topic", "preallocate", "yes", "Expected value to be either true or false"),
        (
            "topic",
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        ("topic", "compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("topic", "compression.type", "LZ4", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("topic", "leader.replication.throttled.replicas", "x", "must be the literal '*' or a list of replicas"),
        ("group", "share.auto.offset.reset", "by_duration:1 day", "must be one of earliest, latest, by_duration"),
        ("broker", "offsets.topic.replication.factor", "40000", "Not a number of type SHORT"),
        ("broker", "node.id", "-2", "Value must be at least -1"),
    ],
)
def test_reasons_are_kafkas(table: str, name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        TABLES[table][name].parse(text)
    assert reason in str(caught.value)


def test_a_wrong_password_is_not_told() -> None:
    setting = Setting(SettingType.PASSWORD, None, "A secret.", check=BROKER_SETTINGS["ssl.client.auth"].check)
    with pytest.raises(InvalidSettingError) as caught:
        setting.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@given(st.lists(st.sampled_from(["compact", "delete"]), unique=True), st.sampled_from([",", ", ", " , "]))
def test_lists_are_read_with_any_space_around_commas(words: list[str], separator: str) -> None:
    assert TOPIC_SETTINGS["cleanup.policy"].parse(separator.join(words)) == tuple(words)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_their_text(value: float) -> None:
    setting = BROKER_SETTINGS["log.cleaner.io.max.bytes.per.second"]
    assert setting.parse(setting.to_text(value) or "") == value


def test_settings_are_in_use_exactly_if_the_code_reads_them() -> None:
    """What the reference page says has an effect has one, and what it says is without effect has none.

    When code begins or ceases to read a setting, change `in_use` in its declaration, and generate the page.
    """
    owners = {owner for view in (BrokerConfig, TopicConfig, GroupConfig) for owner in view.__mro__}
    declarations = {Path(inspect.getfile(owner)).resolve() for owner in owners if owner.__module__.startswith("ottla.")}
    readers = sources(*BROKER, "console", "cli", "metastore", "runtime")
    readers = [path for path in readers if path not in declarations - {ROOT / "settings" / "config.py"}]
    words = {word for path in readers for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    read = {name for table in TABLES.values() for name, setting in table.items() if setting.attribute in words}
    for name, setting in {**TOPIC_SETTINGS, **GROUP_SETTINGS}.items():
        if name in read:
            read.update(broker for broker, _ in setting.broker_names)
            # Bounds of a group's settings are looked up by name (ottla.metadata.changes.config_changes).
            kind, _, rest = name.partition(".")
            read.update(f"group.{kind}.{bound}.{rest.removeprefix('num.')}" for bound in ("min", "max"))
    # The words of these are common ones.
    read -= {"client.metrics", "interval.ms", "match", "metrics", "preallocate", "listeners"}
    in_use = {name for table in TABLES.values() for name, setting in table.items() if setting.in_use}
    in_use -= {"interval.ms", "match", "metrics", "listeners"}
    assert sorted(in_use - read) == []
    # Read in order to be refused, and another name of node.id.
    refused = {"authorizer.class.name", "broker.id"}
    assert sorted((read & (BROKER_SETTINGS.keys() | TOPIC_SETTINGS.keys())) - in_use - refused) == []


class TestViews:
    def test_an_attribute_is_the_name_with_underscores(self) -> None:
        config = BrokerConfig({"num.partitions": "3", "sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-256"})
        assert config.num_partitions == 3
        assert config.sasl_enabled_mechanisms == ("PLAIN", "SCRAM-SHA-256")
        assert config.log_retention_hours == 168
        assert config.log_retention_ms is None

    def test_layers_go_before_one_another_and_changes_show_at_once(self) -> None:
        config = BrokerConfig({"message.max.bytes": "1000"})
        assert config.message_max_bytes == 1000
        config.set_dynamic({}, {"message.max.bytes": "2000"})
        assert config.message_max_bytes == 2000
        config.set_dynamic({"message.max.bytes": "3000"}, {"message.max.bytes": "2000"})
        assert config.message_max_bytes == 3000
        config.set_dynamic({}, {})
        assert config.message_max_bytes == 1000

    @pytest.mark.parametrize(
        ("static", "retention_ms"),
        [
            ({}, 604_800_000),
            ({"log.retention.hours": "1"}, 3_600_000),
            ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
            ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ],
    )
    def test_a_finer_unit_goes_before_a_coarser(self, static: dict[str, str], retention_ms: int) -> None:
        assert BrokerConfig(static).topic_config({}).retention_ms == retention_ms

    def test_a_topic_has_its_own_its_brokers_or_the_default(self) -> None:
        broker = BrokerConfig({"log.segment.bytes": "2000000"})
        assert TopicConfig({"segment.bytes": "3000000"}, broker).segment_bytes == 3_000_000
        assert TopicConfig({}, broker).segment_bytes == 2_000_000
        assert TopicConfig({}, BrokerConfig()).segment_bytes == 1 << 30

    def test_topics_that_set_the_same_share_one_view_until_the_broker_changes(self) -> None:
        broker = BrokerConfig()
        first = broker.topic_config({"retention.ms": "1"})
        assert broker.topic_config({"retention.ms": "1"}) is first
        broker.set_dynamic({}, {"log.flush.interval.messages": "1"})
        assert broker.topic_config({"retention.ms": "1"}) is not first
        assert broker.topic_config({"retention.ms": "1"}).flush_messages == 1

    def test_a_group_falls_back_to_its_broker(self) -> None:
        broker = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
        assert GroupConfig({}, broker).consumer_session_timeout_ms == 50_000
        assert GroupConfig({"consumer.session.timeout.ms": "55000"}, broker).consumer_session_timeout_ms == 55_000

    def test_a_listeners_own_setting_goes_first_for_it(self) -> None:
        config = BrokerConfig({"ssl.keystore.location": "/a", "listener.name.outside.ssl.keystore.location": "/b"})
        assert config.for_listener("OUTSIDE").ssl_keystore_location == "/b"
        assert config.for_listener("INSIDE").ssl_keystore_location == "/a"

    def test_storage_gets_its_own_defaults_from_the_table(self) -> None:
        config = BrokerConfig()
        assert log_config(config.topic_config({})) == LogConfig()
        assert storage_config(config).memstore_bytes == StorageConfig().memstore_bytes
        compacted = config.topic_config({"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"})
        assert (log_config(compacted).compact, log_config(compacted).delete) == (True, False)

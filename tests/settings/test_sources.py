"""Where static settings come from, which goes before which, and how wrong ones are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.properties import parse_properties
from ottla.settings.config import ConfigError
from ottla.settings.description import describe_broker
from ottla.settings.sources import load


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_before_environment_before_properties_before_toml(tmp_path: Path) -> None:
    toml = write(tmp_path / "a.toml", "[num]\npartitions = 2\n[log]\nretention.hours = 2\nsegment.bytes = 2000000\n")
    properties = write(tmp_path / "a.properties", "num.partitions=3\nlog.retention.hours=3\n")
    environment = {"OTTLA_NUM_PARTITIONS": "4", "HOME": "/"}
    config = load(toml=toml, properties=properties, environment=environment, flags={"num.partitions": "5"})
    assert (config.num_partitions, config.log_retention_hours, config.log_segment_bytes) == (5, 3, 2_000_000)
    assert config.origins["num.partitions"] == "the flag for num.partitions"
    assert config.origins["log.retention.hours"] == f"{properties} line 2"
    assert load(environment=environment).num_partitions == 4


def test_toml_values_of_every_kind(tmp_path: Path) -> None:
    toml = write(
        tmp_path / "a.toml",
        """
        tail.cache.bytes = 1000
        "listener.security.protocol.map" = "OUTSIDE:PLAINTEXT"
        listeners = ["OUTSIDE://127.0.0.1:1", "INSIDE://127.0.0.1:2"]
        auto.create.topics.enable = false
        log.cleaner.min.cleanable.ratio = 0.25
        """,
    )
    config = load(toml=toml)
    assert config.ottla_tail_cache_bytes == 1000
    assert config.listeners == ("OUTSIDE://127.0.0.1:1", "INSIDE://127.0.0.1:2")
    assert config.auto_create_topics_enable is False
    assert config.log_cleaner_min_cleanable_ratio == 0.25


def test_ottlas_own_settings_in_the_environment_with_and_without_repeating_the_name() -> None:
    assert load(environment={"OTTLA_TAIL_CACHE_BYTES": "1"}).ottla_tail_cache_bytes == 1
    assert load(environment={"OTTLA_OTTLA_TAIL_CACHE_BYTES": "2"}).ottla_tail_cache_bytes == 2


def test_broker_id_and_node_id_stand_for_each_other_where_one_is_absent() -> None:
    assert load(flags={"broker.id": "7"}).node_id == 7
    assert load(flags={"broker.id": "7", "node.id": "8"}).node_id == 8
    config = load(flags={"node.id": "8"})
    assert config.broker_id == 8
    assert {it.name: it.value for it in describe_broker(config)}["broker.id"] == "8"
    assert config.accepted_without_effect() == []


def test_what_ottla_does_not_need_is_taken_and_can_be_reported(tmp_path: Path) -> None:
    properties = write(
        tmp_path / "server.properties",
        "zookeeper.connect=localhost:2181\nnum.io.threads=8\ninter.broker.protocol.version=3.5\nnum.partitions=2\n"
        "listener.name.outside.ssl.provider=x\n",
    )
    config = load(properties=properties)
    assert config.accepted_without_effect() == [
        "inter.broker.protocol.version",
        "listener.name.outside.ssl.provider",
        "num.io.threads",
        "zookeeper.connect",
    ]


def test_what_is_not_known_may_be_a_secret() -> None:
    config = load(flags={"zookeeper.ssl.keystore.password": "hunter2", "password.encoder.secret": "hunter2"})
    described = {it.name: it for it in describe_broker(config)}
    for name in ("zookeeper.ssl.keystore.password", "password.encoder.secret"):
        assert described[name].is_sensitive
    assert "hunter2" not in repr(described)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"num.partition": "1"},
            "Unknown setting num.partition in the flag for num.partition. Did you mean num.partitions?",
        ),
        ({"qqqqqq": "1"}, "Unknown setting qqqqqq in the flag for qqqqqq."),
        (
            {"num.partitions": "0"},
            "Invalid value 0 for configuration num.partitions: Value must be at least 1 "
            "(in the flag for num.partitions).",
        ),
        (
            {"authorizer.class.name": "com.example.Mine"},
            "authorizer.class.name is com.example.Mine, which Ottla does not know, and without "
            "an authorizer everybody could do everything: it knows "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer.",
        ),
        ({"log.retention.ms": "0"}, "log.retention.ms must be -1 (forever) or at least 1, and is 0."),
        (
            {"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"},
            "group.min.session.timeout.ms (10) must not be greater than group.max.session.timeout.ms (9).",
        ),
    ],
)
def test_wrong_flags_are_told_in_a_sentence(flags: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=flags)
    assert str(caught.value) == sentence


def test_an_unknown_name_in_the_environment_is_told_as_it_stands_there() -> None:
    """It ends no start: images and shells have variables of their own, such as OTTLA_HOME and OTTLA_VERSION."""
    config = load(environment={"OTTLA_NUM_PARTITION": "1", "OTTLA_HOME": "/opt/ottla", "OTTLA_NUM_IO_THREADS": "9"})
    assert config.num_partitions == 1
    assert config.unknown_variables[0] == "OTTLA_NUM_PARTITION. Did you mean OTTLA_NUM_PARTITIONS?"
    assert config.unknown_variables[1].startswith("OTTLA_HOME.")
    assert config.with_dynamic({}, {}).static.keys() == {"num.io.threads"}


def test_a_wrong_line_is_told_with_its_number(tmp_path: Path) -> None:
    properties = write(tmp_path / "server.properties", "# one\n\nnum.partitions=x\n")
    with pytest.raises(ConfigError, match=r"server\.properties line 3"):
        load(properties=properties)


@pytest.mark.parametrize("text", ["num = [", "num.partitions = 2020-01-01", "num.partitions = [[1]]"])
def test_bad_toml_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.toml"):
        load(toml=write(tmp_path / "a.toml", text))


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load(properties=tmp_path / "absent")


def test_properties_as_java_reads_them() -> None:
    text = """
# a comment
! another
plain=value
  spaced   =   value with blanks
colon:value
blank value
continued=one,\\
    two,\\
    three
escaped\\=key=a\\tb\\u00e9\\\\
empty=
bare
"""
    assert [(key, value) for key, value, _ in parse_properties(text)] == [
        ("plain", "value"),
        ("spaced", "value with blanks"),
        ("colon", "value"),
        ("blank", "value"),
        ("continued", "one,two,three"),
        ("escaped=key", "a\tbé\\"),
        ("empty", ""),
        ("bare", ""),
    ]


@given(st.text())
def test_any_text_is_read_or_told(text: str) -> None:
    for key, value, line in parse_properties(text):
        assert isinstance(key, str)
        assert isinstance(value, str)
        assert 1 <= line <= len(text.splitlines())


def test_where_kubernetes_says_that_services_are_is_no_setting() -> None:
    links = {
        "OTTLA_SERVICE_HOST": "10.0.0.7",
        "OTTLA_SERVICE_PORT": "9092",
        "OTTLA_SERVICE_PORT_KAFKA": "9092",
        "OTTLA_PORT": "tcp://10.0.0.7:9092",
        "OTTLA_PORT_9092_TCP": "tcp://10.0.0.7:9092",
        "OTTLA_PORT_9092_TCP_PROTO": "tcp",
        "OTTLA_PORT_9092_TCP_PORT": "9092",
        "OTTLA_PORT_9092_TCP_ADDR": "10.0.0.7",
        "OTTLA_HEADLESS_SERVICE_HOST": "10.0.0.8",
        "OTTLA_HEADLESS_PORT": "tcp://10.0.0.8:9644",
        "OTTLA_HEADLESS_PORT_9644_TCP_ADDR": "10.0.0.8",
    }
    assert load(environment={**links, "OTTLA_NUM_PARTITIONS": "4"}).num_partitions == 4


@pytest.mark.parametrize("variable", ["OTTLA_PORT", "OTTLA_SERVICE_HOSTS", "OTTLA_PORT_TCP"])
def test_what_only_looks_like_a_service_is_an_unknown_setting(variable: str) -> None:
    (unknown,) = load(environment={variable: "9093"}).unknown_variables
    assert unknown.startswith(f"{variable}.")

"""Units behind numbers, in every place where people write settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.settings.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, ConfigError
from ottla.settings.sources import load
from ottla.settings.types import SettingType
from ottla.settings.units import with_unit, without_unit


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "604800000", "604800000"),
        ("log.retention.hours", "7d", "168"),
        ("offsets.retention.minutes", "1w", "10080"),
        ("quota.window.size.seconds", "1m", "60"),
        ("segment.bytes", "100MiB", "104857600"),
        ("segment.bytes", "100 mb", "100000000"),
        ("max.message.bytes", "1kB", "1000"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("producer_byte_rate", "1MiB", "1048576"),
        ("leader.replication.throttled.rate", "5MB", "5000000"),
        ("compression.type", "lz4", "lz4"),
        ("client.id", "7d", "7d"),
        ("controller_mutation_rate", "5", "5"),
    ],
)
def test_a_unit_becomes_the_number_that_the_setting_is_in(name: str, text: str, number: str) -> None:
    assert without_unit(name, text) == number


@pytest.mark.parametrize(
    ("name", "number", "written"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "5400000", "90m"),
        ("retention.ms", "1500", None),
        ("retention.ms", "999", None),
        ("retention.ms", "-1", None),
        ("log.retention.hours", "168", "7d"),
        ("log.retention.hours", "5", None),
        ("segment.bytes", "1073741824", "1GiB"),
        ("segment.bytes", "100000000", None),
        ("max.message.bytes", "1048588", None),
        ("num.partitions", "86400000", None),
        ("cleanup.policy", "compact", None),
    ],
)
def test_a_number_comes_back_as_people_write_it(name: str, number: str, written: str | None) -> None:
    assert with_unit(name, number) == written
    assert written is None or without_unit(name, written) == number


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("retention.ms", "7MB", "is a time"),
        ("segment.bytes", "7d", "is a size"),
        ("segment.bytes", "100M", "KiB, MiB"),
        ("log.retention.hours", "90m", "90m is not a whole number of them"),
    ],
)
def test_a_unit_that_does_not_suit_is_said(name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        without_unit(name, text)


def test_settings_take_units_from_every_source(tmp_path: Path) -> None:
    toml, properties = tmp_path / "a.toml", tmp_path / "b.properties"
    toml.write_text('"log.retention.ms" = "7d"\n')
    properties.write_text("log.segment.bytes=100MiB\n")
    config = load(
        toml=toml,
        properties=properties,
        environment={"OTTLA_TAIL_CACHE_BYTES": "64MiB"},
        flags={"log.roll.hours": "2d"},
    )
    assert (config.log_retention_ms, config.log_segment_bytes) == (604_800_000, 104_857_600)
    assert (config.ottla_tail_cache_bytes, config.log_roll_hours) == (67_108_864, 48)
    with pytest.raises(ConfigError, match=r"segment\.bytes is a size.*flag"):
        load(flags={"log.segment.bytes": "7d"})


def test_every_setting_whose_name_says_time_or_size_takes_a_unit() -> None:
    numbers = (SettingType.INT, SettingType.LONG, SettingType.SHORT)
    for settings in (BROKER_SETTINGS, TOPIC_SETTINGS, GROUP_SETTINGS):
        for name, setting in settings.items():
            if setting.type in numbers and name.endswith((".ms", ".seconds", ".minutes", ".hours")):
                assert without_unit(name, "1w").isdecimal(), name
            if setting.type in numbers and name.endswith((".bytes", ".size")) and "batch" not in name:
                assert without_unit(name, "1MiB") == ("1048576" if "byte" in name or "buffer" in name else "1MiB"), name

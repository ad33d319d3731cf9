"""A wrong value of each type is told in a sentence, wherever it stands, and the broker does not start."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.settings.config import BROKER_SETTINGS, ConfigError
from ottla.settings.sources import load
from ottla.settings.types import SettingType


class Wrong(NamedTuple):
    """A value that a setting does not take, and the reason that is given."""

    name: str
    text: str
    reason: str


WRONG = {
    SettingType.BOOLEAN: Wrong("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
    SettingType.INT: Wrong("num.partitions", "3.5", "Not a number of type INT"),
    SettingType.SHORT: Wrong("offsets.topic.replication.factor", "32768", "Not a number of type SHORT"),
    SettingType.LONG: Wrong("log.retention.bytes", "9223372036854775808", "Not a number of type LONG"),
    SettingType.DOUBLE: Wrong("log.cleaner.min.cleanable.ratio", "half", "Not a number of type DOUBLE"),
    SettingType.STRING: Wrong("ottla.log.format", "xml", "String must be one of: auto, console, json"),
    SettingType.LIST: Wrong("log.cleanup.policy", "delete,shrink", "String must be one of: compact, delete"),
    SettingType.CLASS: Wrong("principal.builder.class", "no class", "Class no class could not be found."),
}
OUT_OF_RANGE = [
    Wrong("num.partitions", "0", "Value must be at least 1"),
    Wrong("ottla.rewrite.dead.ratio", "1.5", "Value must be no more than 1"),
    Wrong("max.connections.per.ip.overrides", "localhost", "must be host:count pairs, separated by commas"),
    Wrong("max.connections.per.ip.overrides", "localhost:many", "must be host:count pairs, separated by commas"),
]
ALL = [pytest.param(wrong, id=f"{wrong.name}={wrong.text}") for wrong in (*WRONG.values(), *OUT_OF_RANGE)]


def test_every_type_that_can_be_wrong_is_among_these() -> None:
    # Any text is a password.
    assert WRONG.keys() == set(SettingType) - {SettingType.PASSWORD}
    for type_, wrong in WRONG.items():
        assert BROKER_SETTINGS[wrong.name].type is type_


def refusal(**sources: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**sources)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("wrong", ALL)
def test_on_the_command_line(wrong: Wrong) -> None:
    text = refusal(flags={wrong.name: wrong.text})
    assert f"for configuration {wrong.name}: {wrong.reason}" in text
    assert f"the flag for {wrong.name}" in text


@pytest.mark.parametrize("wrong", ALL)
def test_in_the_environment(wrong: Wrong) -> None:
    variable = "OTTLA_" + wrong.name.removeprefix("ottla.").replace(".", "_").upper()
    text = refusal(environment={variable: wrong.text})
    assert f"for configuration {wrong.name}: {wrong.reason}" in text
    assert variable in text


@pytest.mark.parametrize("wrong", ALL)
def test_in_server_properties(wrong: Wrong, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"# a comment\n{wrong.name}={wrong.text}\n")
    text = refusal(properties=file)
    assert f"for configuration {wrong.name}: {wrong.reason}" in text
    assert f"{file} line 2" in text


@pytest.mark.parametrize("wrong", ALL)
def test_in_toml(wrong: Wrong, tmp_path: Path) -> None:
    file = tmp_path / "ottla.toml"
    file.write_text(f'"{wrong.name}" = "{wrong.text}"\n')
    text = refusal(toml=file)
    assert f"for configuration {wrong.name}: {wrong.reason}" in text
    assert str(file) in text


def test_nobody_could_connect() -> None:
    for name in ("max.connections", "max.connections.per.ip", "max.connection.creation.rate"):
        assert name in refusal(flags={name: "0"})
    load(flags={"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"})

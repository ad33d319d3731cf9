"""Which schema registry a command asks, and which password it sends there."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli import CommandError
from ottla.cli.records import registry_address

USER = """
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="x";
"""
ENCRYPTED = "security.protocol=SASL_SSL\n" + USER
PLAINTEXT = "security.protocol=SASL_PLAINTEXT\n" + USER


def a_cluster(protocol: str) -> Any:
    """A client of a broker whose HTTP port has this security protocol."""
    configs = [
        SimpleNamespace(name="ottla.registry.listeners", value="0.0.0.0:8081"),
        SimpleNamespace(name="ottla.http.security.protocol", value=protocol),
    ]
    described = SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=configs)])
    broker = SimpleNamespace(node_id=1, host="b1")
    return SimpleNamespace(
        metadata=lambda _: SimpleNamespace(brokers=[broker]),
        broker=lambda _: SimpleNamespace(call=lambda _: described),
    )


def opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: str, protocol: str, registry: str | None = None
) -> tuple[str, str | None]:
    """The address that is asked, and the user and password that are sent there."""
    config = tmp_path / "client.properties"
    config.write_text(properties)
    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(registry_address, "Registry", lambda url, login: asked.append((url, login)))
    arguments = argparse.Namespace(registry=registry, command_config=str(config))
    registry_address.open_registry(arguments, a_cluster(protocol))
    ((url, login),) = asked
    return url, None if login is None else login.user_info


def test_the_brokers_own_registry_is_given_the_kafka_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(tmp_path, monkeypatch, ENCRYPTED, "SASL_SSL") == ("https://b1:8081", "ann:x")
    assert opened(tmp_path, monkeypatch, PLAINTEXT, "SASL_PLAINTEXT") == ("http://b1:8081", "ann:x")
    assert opened(tmp_path, monkeypatch, ENCRYPTED, "PLAINTEXT") == ("http://b1:8081", None)


def test_no_other_registry_is_given_the_kafka_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = "http://elsewhere:8081"
    assert opened(tmp_path, monkeypatch, ENCRYPTED, "SASL_SSL", there) == (there, None)
    named = f"{ENCRYPTED}schema.registry.url={there}\n"
    assert opened(tmp_path, monkeypatch, named, "SASL_SSL") == (there, None)
    named += "basic.auth.user.info=bob:y\n"
    assert opened(tmp_path, monkeypatch, named, "SASL_SSL") == (there, "bob:y")


def test_a_password_that_goes_to_the_broker_encrypted_goes_nowhere_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match="is not encrypted"):
        opened(tmp_path, monkeypatch, ENCRYPTED, "SASL_PLAINTEXT")

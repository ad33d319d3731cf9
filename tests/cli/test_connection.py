"""What the commands say where a broker cannot be talked to as they were told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli import main
from ottla.testing import Broker

LIST = ["topic", "list", "--timeout", "10"]


@pytest.mark.parametrize(
    ("broker", "properties", "advice"),
    [
        ({"tls": True}, "", "it speaks TLS, so give --command-config a file with security.protocol=SASL_SSL or SSL"),
        ({}, "security.protocol=SSL", "it speaks no TLS"),
        ({"users": {"alice": "wonder"}}, "", "if it asks for a login, give --command-config a file with"),
    ],
)
def test_another_protocol_is_named(
    broker: dict[str, object], properties: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography")
    file = tmp_path / "client.properties"
    file.write_text(properties)
    with Broker(**broker) as running:  # type: ignore[arg-type]
        assert main([*LIST, "-b", running.bootstrap, "--command-config", str(file)]) == 1
        said = capsys.readouterr().err
        assert advice in said
        known = {name: str(value).replace("\n", "\\n") for name, value in running.client_config().items()}
        file.write_text("".join(f"{name}={value}\n" for name, value in known.items()))
        assert main([*LIST, "-b", running.bootstrap, "--command-config", str(file)]) == 0


def test_misspelt_settings_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protcol=PLAINTEXT\nsasl.mechansim=PLAIN\nssl.crl.location=x\nclient.id=me\n")
    with Broker() as running:
        assert main([*LIST, "-b", running.bootstrap, "--command-config", str(file)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"{file}: security.protcol is not a setting: did you mean security.protocol?",
        f"{file}: sasl.mechansim is not a setting: did you mean sasl.mechanism?",
    ]

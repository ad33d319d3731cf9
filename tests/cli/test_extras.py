"""Where a package of an extra is missing, one line names the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import _extra_of, main


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyspark.sql", "spark"),
        ("cryptography.hazmat", "security"),
        ("mcp", "mcp"),
        ("greenlet", "simulation"),
        ("trio", None),
        ("nothing_of_the_kind", None),
    ],
)
def test_the_extra_of_a_module(module: str, extra: str | None) -> None:
    assert _extra_of(module) == extra


def test_a_command_without_its_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: object) -> int:
        raise ModuleNotFoundError("No module named 'greenlet'", name="greenlet")

    monkeypatch.setattr("ottla.cli.records.decode.run", run)
    assert main(["decode", "00"]) == 1
    said = capsys.readouterr().err
    assert said == "ottla decode: greenlet is not installed: pip install 'ottla[simulation]' brings it\n"


@pytest.mark.parametrize("module", ["ottla.pipeline.source", "ottla.pipeline.segments"])
@pytest.mark.parametrize("package", ["pyspark", "numpy"])
def test_sparks_side_names_its_extra(module: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    if package == "numpy" and done.returncode == 0:
        pytest.skip("it does without")
    assert done.stderr.splitlines()[-1].endswith(f"{package} is not installed: pip install 'ottla[spark]' brings it")


def test_a_pkcs12_store_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "k.p12"
    store.write_bytes(b"\x30\x82")
    for name in ["cryptography", *(name for name in sys.modules if name.startswith("cryptography."))]:
        monkeypatch.setitem(sys.modules, name, None)
    flags = {"listeners": "SSL://127.0.0.1:0", "inter.broker.listener.name": "SSL", "ssl.keystore.location": str(store)}
    words = [word for name, value in flags.items() for word in ("--set", f"{name}={value}")]
    for data in ("new", "there"):
        (tmp_path / "there").mkdir(exist_ok=True)
        assert main(["serve", "--data-dir", str(tmp_path / data), *words]) == 1
        said = capsys.readouterr().err
        assert said.splitlines()[-1].endswith("which needs another package: pip install 'ottla[security]'.")
        assert "Traceback" not in said

"""Every snippet of docs/spark.md, run from top to bottom in one folder, against one broker."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.spark.session import ROOT
from ottla import cli

PAGE = ROOT / "docs" / "spark.md"
ADDRESS = "127.0.0.1:9092"
FENCE = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What the tests have done otherwise, or cannot do.
NOT_RUN = ("pip install", "ottla serve")


class Snippet(NamedTuple):
    language: str
    name: str
    text: str


def snippets() -> Iterator[Snippet]:
    for found in FENCE.finditer(PAGE.read_text()):
        yield Snippet(*found.groups())


def shell(line: str, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs an ottla command as a shell would, with its standard input; what it said."""
    piped = re.fullmatch(r"echo (.*) \| (ottla .*)|(ottla .*) <<< (.*)", line)
    command, given = line, ""
    if piped is not None:
        command = piped[2] or piped[3]
        given = shlex.split(piped[1] or piped[4])[0] + "\n"
    words = shlex.split(command)
    assert words[0] == "ottla", f"{line!r} is not a command that this test can run"
    given_path = Path("standard-input")
    given_path.write_text(given)
    with given_path.open() as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        code = cli.main(words[1:])
    said = capture.readouterr()
    assert code == 0, f"{line}: {said.out}{said.err}"
    return said.out


@pytest.mark.slow
def test_the_page_does_what_it_says(
    spark: SparkSession,
    own_broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", own_broker.bootstrap)
    names: dict[str, object] = {"spark": spark}
    said = ""
    for snippet in snippets():
        text = snippet.text.replace(ADDRESS, own_broker.bootstrap).replace('"lake/', f'"{tmp_path}/lake/')
        text = text.replace("`lake/", f"`{tmp_path}/lake/")
        if snippet.language == "toml":
            (tmp_path / snippet.name).write_text(text)
        elif snippet.language == "python":
            exec(compile(text, f"{PAGE.name}: {text[:40]}", "exec"), names)
        elif snippet.language == "sh" and snippet.name != "on-a-cluster":
            for line in text.splitlines():
                if not line.startswith(NOT_RUN):
                    said += shell(line, capsys, monkeypatch)
    assert "orders: batch 0, 2 rows, 1 dead letters, lag 0, " in said
    orders = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "lake" / "orders"))
    assert {(row.id, row.coupon) for row in orders.collect()} == {(1, None), (2, None), (3, "SPRING")}
    assert '{"id":1,"total":12.5}' in said or '{"total":12.5}' in said
    assert cli.main(["table", "sync", "everything.toml"]) == 0
    by_day = spark.read.parquet(str(tmp_path / "lake" / "orders_by_day"))
    assert by_day.count() == 4


def test_the_coordinates_are_those_that_the_tests_use() -> None:
    pom = (ROOT / "compat_tests" / "spark" / "pom.xml").read_text()
    properties = dict(re.findall(r"<([\w.]+\.version)>([^<]+)</", pom))

    def filled(text: str) -> str:
        return re.sub(r"\$\{([\w.]+)\}", lambda found: properties[found[1]], text)

    parts = re.findall(r"<groupId>([^<*]+)</groupId>\s*<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)<", pom)
    used = [":".join(map(filled, part)) for part in parts if part[0] not in ("ottla", "org.apache.maven.plugins")]
    (listed,) = [snippet.text.split() for snippet in snippets() if snippet.name == "packages"]
    assert listed == used

"""`ottla cluster health`: a line and an exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.cli import main
from ottla.testing import Cluster


def test_it_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster() as cluster:
        health = ["cluster", "health", "-b", cluster.bootstrap_servers]
        assert main(["topic", "create", "t", "-p", "2", "-r", "3", "-b", cluster.bootstrap_servers]) == 0
        wait_for(lambda: main(health) == 0)
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith("healthy: 3 brokers, ")
        cluster.kill(3)
        wait_for(lambda: json_of([*health, "--json"], capsys)["missing_brokers"] == [3])
        assert main(health) == 1
        (said,) = capsys.readouterr().out.splitlines()
        assert said.startswith("unhealthy: brokers that hold replicas and are not there: 3; ")
        assert "2 partitions under-replicated: t-0, t-1" in said


def json_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    main(words)
    return json.loads(capsys.readouterr().out)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)

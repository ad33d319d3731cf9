"""Every fault of `make jepsen` once."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.jepsen.run import run
from tests.etcd import needs_etcd

pytestmark = [pytest.mark.replicas, needs_etcd]


def test_every_fault_once(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if request.config.getoption("--broker") != "ottla":
        pytest.skip("it has nodes of its own")
    outcome = run(0, 0, tmp_path, pause_s=0.5)
    assert not outcome.wrong, outcome.summary

"""The tests that need Spark for long run with `-m spark`."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.selection import below, leave_out


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_spark = [item for item in below(Path(__file__).parent, items) if item.get_closest_marker("spark") is not None]
    if "spark" not in config.option.markexpr:
        leave_out(config, items, on_spark)
    for item in on_spark:
        for warning in ("ResourceWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))

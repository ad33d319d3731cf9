"""The tests that need Spark for long run with `-m spark`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = [item for item in mine if item.get_closest_marker("spark") is not None]
    if "spark" not in config.option.markexpr:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    for item in left_out:
        for warning in ("ResourceWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))

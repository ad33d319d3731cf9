"""What runs only when it is asked for: snippets in languages whose tools fetch packages."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m snippets` the slow pages are left out."""
    if "snippets" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("snippets") is not None]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)

"""What runs only when it is asked for: snippets and recipes whose tools and libraries have to be fetched."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m snippets` and `-m recipes` the slow pages are left out."""
    left_out = [
        item
        for item in items
        for marker in ("snippets", "recipes")
        if item.get_closest_marker(marker) is not None and marker not in config.option.markexpr
    ]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)

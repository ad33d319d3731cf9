"""Which tests of a run are looked at, and which are left out, for the conftest.py of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

ON_NODES: Final = "three-nodes"
"""In the names of what `--nodes` adds."""


def below(folder: Path, items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those in the files of a folder and of its folders. Ten thousand are asked, so paths are compared as text."""
    prefix = f"{folder}{os.sep}"
    return [item for item in items if str(item.path).startswith(prefix)]


def leave_out(config: pytest.Config, items: list[pytest.Item], left_out: Iterable[pytest.Item]) -> None:
    """Take some out of the items of a run, and have them counted as deselected."""
    gone = dict.fromkeys(left_out)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=list(gone))

"""Differences that are found and not mended yet: `open_differences.json`, which only becomes shorter.

Each is a key of `Difference`. A history is only looked at up to the first that is open: what comes after may follow
from it. `python -m compat_tests.differential --write-open` writes the file anew, from what the run found.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from compat_tests.differential.compare import Key

PATH: Final = Path(__file__).with_name("open_differences.json")


def load_open(path: Path = PATH) -> frozenset[Key]:
    if not path.exists():
        return frozenset()
    return frozenset((api, field, kafka, ottla) for api, field, kafka, ottla in json.loads(path.read_text()))


def save_open(keys: Iterable[Key], path: Path = PATH) -> None:
    lines = ",\n".join(json.dumps(key, ensure_ascii=False) for key in sorted(keys))
    path.write_text(f"[\n{lines}\n]\n")

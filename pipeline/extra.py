"""What Spark's side of Ottla needs, named where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Imports in here need one of Ottla's extras; without it they fail with a sentence that says so."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "ottla":
            raise
        text = f"{error.name.partition('.')[0]} is not installed: pip install 'ottla[{extra}]' brings it"
        raise ModuleNotFoundError(text, name=error.name) from None

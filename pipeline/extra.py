"""What Spark's side of Ottla needs, named where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needing_spark() -> Iterator[None]:
    """Imports in here need the extra `spark`; without it they fail with a sentence that says so."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "ottla":
            raise
        text = f"{error.name.partition('.')[0]} is not installed: pip install 'ottla[spark]' brings it"
        raise ModuleNotFoundError(text, name=error.name) from None

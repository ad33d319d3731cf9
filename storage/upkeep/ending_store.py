"""Steps after which the files of a store and what is remembered of them may differ, if they fail half done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.storage.store.message_store import MessageStore

__all__ = ["ending_store"]


@contextmanager
def ending_store(store: MessageStore) -> Iterator[None]:
    """Let a failure that nobody foresaw stop the store for good: going on with it could lose or falsify records."""
    try:
        yield
    except (OSError, StorageError):
        raise
    except Exception as error:
        store.fail(error)
        raise

"""Which errors of the operating system are temporary: the operation may be tried again, and nothing is lost."""

from __future__ import annotations

import errno
from typing import Final

__all__ = ["RETRY_SECONDS", "is_full", "is_out_of_descriptors", "passes"]

RETRY_SECONDS: Final = 0.1
"""How long to wait until there may be descriptors again."""

_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether the process or the machine has no descriptors left: nothing was opened or created."""
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR


def is_full(error: BaseException) -> bool:
    """Whether the disk, or the user's quota, has no room left: a part may have been written."""
    return isinstance(error, OSError) and error.errno in _NO_SPACE


def passes(error: BaseException) -> bool:
    """Whether it is one of the two. A failed sync is never temporary, whatever its error: see `FileStore`."""
    return is_out_of_descriptors(error) or is_full(error)

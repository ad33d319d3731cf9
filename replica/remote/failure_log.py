"""Lines about the object store: one when something begins to fail, and one when it is well again."""

from __future__ import annotations

import logging

from ottla.tiers.errors import ObjectStoreUnavailableError

__all__ = ["FailureLog"]

logger = logging.getLogger(__name__)


class FailureLog:
    """Knows what fails. A store that cannot be reached is one failure, whatever was asked of it."""

    def __init__(self) -> None:
        #: What fails, by name, and why.
        self.failing: dict[str, str] = {}

    def failed(self, name: str, what: str, error: Exception) -> None:
        """Something has failed, perhaps again."""
        if isinstance(error, ObjectStoreUnavailableError):
            name, what = "the object store", "cannot be reached"
        if name not in self.failing:
            keys = {"what": name, "error": str(error)}
            logger.warning("%s %s: %s", name, what, error, extra=keys)
        self.failing[name] = str(error)

    def well(self, name: str, *, has_asked: bool = True) -> None:
        """Something has succeeded, for which the object store was asked unless it says otherwise."""
        for known in (name, "the object store") if has_asked else (name,):
            if self.failing.pop(known, None) is not None:
                logger.info("%s is well again", known, extra={"what": known})

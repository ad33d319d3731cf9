"""Which Ottla this is."""

from __future__ import annotations


def version() -> str:
    """The installed version of the package. Slow when it is first called."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("ottla")
    except PackageNotFoundError:
        return "unknown"

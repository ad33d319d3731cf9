"""Where the sources of the broker lie, for tests that read them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

BROKER = ("server", "coordinator", "security", "replica", "metadata", "settings")
"""The rooms that together are a broker, from the network down to the settings."""

PRODUCT = (
    *BROKER, "cli", "client", "console", "kproto", "metastore", "metrics", "pipeline", "proxy", "registry", "rest",
    "runtime", "schemas", "storage", "testing", "tiers",
)  # fmt: skip
"""All that is released: everything but tests, benchmarks, simulations and examples."""


def sources(*rooms: str) -> list[Path]:
    """Every Python file of some rooms."""
    return [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]


LOOPS = (
    *BROKER,
    "cli",
    "client",
    "console",
    "kproto",
    "metastore",
    "metrics",
    "proxy",
    "registry",
    "rest",
    "runtime",
    "schemas",
    "storage",
    "testing",
    "tiers",
)
"""The rooms of what runs on an event loop, and of what is called there: all of the product but the pipeline."""

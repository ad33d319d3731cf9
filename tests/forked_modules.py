"""Imported once in the process that `forked` forks: what commands and brokers import while they start and run."""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

from tests.rooms import BROKER

for room in BROKER:
    for found in walk_packages(import_module(f"ottla.{room}").__path__, f"ottla.{room}."):
        with suppress(ImportError):  # of an extra that is not installed
            import_module(found.name)
for name in ("topic", "group", "config", "produce", "consume", "doctor", "serve", "fsck", "backup", "proxy"):
    import_module(f"ottla.cli.{name}")
# So no child's collection of garbage touches, and with that copies, the pages of what is there.
gc.freeze()

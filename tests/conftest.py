"""What holds for every test: no example is failed for being slow, because the machine may be busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ottla", settings.default, deadline=None)
settings.load_profile("ottla")

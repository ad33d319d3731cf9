"""Importing Trio without the parts that a broker does not need: the import is most of the time that a start takes.

Trio imports TLS and the signing of DTLS cookies, which load OpenSSL's two libraries, and it runs `ldconfig` to find the
library that names threads. Nothing is taken away: a postponed module is loaded when anybody first looks at what is in
it.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.abc import Loader

WAITING: Final = frozenset({"hmac", "ssl"})
"""Modules that Trio imports as a whole and uses only inside functions; one that it looked into would not stay
postponed.

Not a package: its submodules look into it while they are imported, which would be circular.
"""


def import_trio() -> None:
    """After this, `import trio` takes no time. Does nothing if Trio has been imported."""
    finder = _WaitingModules()
    sys.meta_path.insert(0, finder)
    try:
        with _known_library():
            import trio  # noqa: F401
    finally:
        sys.meta_path.remove(finder)


class _WaitingModules:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in WAITING else None
        if spec is not None and spec.loader is not None:
            # A Loader by its methods: importing importlib.abc, to be one by name, would cost what this saves.
            spec.loader = _WaitingLoader(spec.loader)  # type: ignore[assignment]
        return spec


class _WaitingLoader:
    """Makes an empty module, which its own loader fills when something in it is first asked for.

    importlib.util.LazyLoader is not enough: with it, a second `import` of the module already loads it.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = RLock()

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        is_loading = False

        def look(name: str) -> Any:
            nonlocal is_loading
            with self._lock:
                if vars(module).get("__getattr__") is look and not is_loading:
                    is_loading = True
                    try:
                        self._loader.exec_module(module)
                    finally:
                        is_loading = False
                    if vars(module).get("__getattr__") is look:
                        del module.__getattr__
                if name in vars(module):
                    return vars(module)[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = look  # type: ignore[method-assign]


@contextmanager
def _known_library() -> Iterator[None]:
    """glibc has always had the function that names threads in one library; elsewhere it is looked for as usual."""
    look_for = ctypes.util.find_library

    def find_library(name: str) -> str | None:
        return "libpthread.so.0" if name == "pthread" and _has_glibc() else look_for(name)

    ctypes.util.find_library = find_library
    try:
        yield
    finally:
        ctypes.util.find_library = look_for


def _has_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False

"""The address of an object store: which kind it is, and where."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.tiers.object_store import ObjectStore

__all__ = ["check_remote_url", "open_object_store"]

_CLOUDS: Final = ("s3", "gs", "az")
_EXPECTED: Final = "It must be s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///path"


def check_remote_url(text: str) -> None:
    """Check the address of an object store. Raises ValueError with the reason."""
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise ValueError("The address of an object store must not contain ? or #")
    if "@" in parts.netloc:
        raise ValueError("Credentials belong into the environment, not into the address of an object store")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise ValueError("A folder is named as file:///path, with three slashes")
    elif parts.scheme not in _CLOUDS or not parts.netloc:
        raise ValueError(_EXPECTED)


def open_object_store(url: str, *, timeout_seconds: float, config: Mapping[str, str] | None = None) -> ObjectStore:
    """The object store at this address. No request is made yet.

    Raises ValueError for what is no address, ObjectStoreRefusedError for settings that the store cannot have, and
    ModuleNotFoundError if `ottla[tiers]` is not installed. `config` are obstore's own settings, for a cloud.
    """
    check_remote_url(url)
    if url.startswith("file:"):
        from ottla.tiers.stores.folder_store import FolderObjectStore

        return FolderObjectStore(unquote(urlsplit(url).path))
    # Loaded for such addresses only: it takes a fifth of a second.
    store: ObjectStore = import_module("ottla.tiers.stores.cloud_store").CloudObjectStore(
        url, timeout_seconds=timeout_seconds, config=config
    )
    return store

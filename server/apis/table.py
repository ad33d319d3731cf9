"""The APIs that this broker serves. Each is a module in a folder of this room: `produce.py` serves Produce."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

import ottla.server.apis as room
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.releases import latest_versions
from ottla.runtime.errors import CloseConnectionError
from ottla.server.apis.pending import handler_of
from ottla.server.apis.served_api import Handler, ServedApi

if TYPE_CHECKING:
    from ottla.server.apis.declaration import Api

_TELEMETRY: Final = "telemetry"


def served() -> dict[ApiKey, str]:
    """Every API that has a handler's module, and the folder of that; nothing else is advertised."""
    found: dict[ApiKey, str] = {}
    for root in room.__path__:
        folders = [entry for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("_")]
        for folder in folders:
            for name in os.listdir(folder):
                key = ApiKey.__members__.get(name.removesuffix(".py").upper())
                if key is not None:
                    found[key] = folder.name
    return dict(sorted(found.items()))


def needing_http() -> frozenset[ApiKey]:
    """The APIs that are served only where the broker has an HTTP port: without `/metrics` their data cannot be read.
    Kafka does not advertise them either unless it has a plugin that takes the metrics.
    """
    return frozenset(key for key, folder in served().items() if folder == _TELEMETRY)


def module_of(key: ApiKey, folder: str | None = None) -> ModuleType:
    """The module of a served API, which has its `API` and `handle`; looked for, unless the folder is known."""
    return import_module(f"{room.__name__}.{folder or served()[key]}.{key.name.lower()}")


def declaration(key: ApiKey) -> Api:
    """The declaration in the module of a served API."""
    declared: Api = module_of(key).API
    return declared


def _load(key: ApiKey, folder: str) -> tuple[Api, Handler]:
    module = module_of(key, folder)
    declared: Api = module.API
    assert declared.key is key, f"{module.__name__} declares {declared.key!r}"
    handle = module.handle
    if declared.forwarded:
        from ottla.server.apis.forwarded import answered_up_to_date

        handle = answered_up_to_date(handle, is_timed=declared.timed)
    return declared, handler_of(handle)


class ApiTable:
    """The APIs that this broker serves, by number."""

    __slots__ = ("_apis",)

    def __init__(self, apis: Iterable[ServedApi]) -> None:
        self._apis = {int(api.key): api for api in sorted(apis, key=lambda api: api.key)}

    @classmethod
    def default(cls, *, takes_telemetry: bool = True, release: str | None = None) -> ApiTable:
        """Everything that is served; without a place for what clients push, all but `needing_http`; of what an earlier
        release of Kafka serves, no more than that.
        """
        modules = served()
        if not takes_telemetry:
            modules = {key: folder for key, folder in modules.items() if folder != _TELEMETRY}
        latest = {key: key.valid_versions.highest for key in modules} if release is None else latest_versions(release)
        # An API of which that release serves only versions that Kafka 4 has removed is left out.
        return cls(
            ServedApi(key, partial(_load, folder=folder), at_most=latest[key])
            for key, folder in modules.items()
            if latest.get(key, -1) >= key.valid_versions.lowest
        )

    def __iter__(self) -> Iterator[ServedApi]:
        return iter(self._apis.values())

    def find(self, api_key: int, api_version: int) -> ServedApi:
        """The API of a request, CloseConnectionError if Kafka would close the connection over it."""
        api = self._apis.get(api_key)
        if api is None:
            raise CloseConnectionError(_why_not(api_key))
        if not api.min_version <= api_version <= api.max_version and api.key is not ApiKey.API_VERSIONS:
            raise CloseConnectionError(f"version {api_version} of {api} is not served")
        return api


def _why_not(api_key: int) -> str:
    from ottla.server.apis.not_served import NOT_SERVED

    reasons = {int(key): f"API key {api_key} ({key.name}) is not served: {why}" for key, why in NOT_SERVED.items()}
    return reasons.get(api_key, f"API key {api_key} is not served")

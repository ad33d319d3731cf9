"""The table of addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.registry.errors import RegistryError
from ottla.registry.http import schemas, settings, subjects
from ottla.registry.http.call import Handler

_SUBJECT: Final = "/subjects/{subject}"
_VERSION: Final = f"{_SUBJECT}/versions/{{version}}"

_TABLE: Final[Mapping[tuple[str, str], Handler]] = {
    ("GET", "/"): settings.root,
    ("GET", "/contexts"): subjects.contexts,
    ("GET", "/subjects"): subjects.list_all,
    ("POST", _SUBJECT): subjects.look_up,
    ("DELETE", _SUBJECT): subjects.delete,
    ("GET", f"{_SUBJECT}/versions"): subjects.list_versions,
    ("POST", f"{_SUBJECT}/versions"): subjects.register,
    ("GET", _VERSION): subjects.version,
    ("DELETE", _VERSION): subjects.delete_version,
    ("GET", f"{_VERSION}/schema"): subjects.version_text,
    ("GET", f"{_VERSION}/referencedby"): subjects.referenced_by,
    ("GET", f"{_SUBJECT}/metadata"): subjects.latest_with_metadata,
    ("GET", "/schemas"): schemas.list_all,
    ("GET", "/schemas/types"): schemas.types,
    ("GET", "/schemas/ids/{id}"): schemas.by_id,
    ("GET", "/schemas/ids/{id}/schema"): schemas.text_by_id,
    ("GET", "/schemas/ids/{id}/subjects"): schemas.subjects_of_id,
    ("GET", "/schemas/ids/{id}/versions"): schemas.versions_of_id,
    ("GET", "/schemas/guids/{guid}"): schemas.by_guid,
    ("GET", "/schemas/guids/{guid}/ids"): schemas.ids_of_guid,
    ("POST", "/compatibility/subjects/{subject}/versions"): settings.check_all,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): settings.check_version,
    ("GET", "/config"): settings.config,
    ("PUT", "/config"): settings.change_config,
    ("DELETE", "/config"): settings.delete_config,
    ("GET", "/config/{subject}"): settings.config,
    ("PUT", "/config/{subject}"): settings.change_config,
    ("DELETE", "/config/{subject}"): settings.delete_config,
    ("GET", "/mode"): settings.mode,
    ("PUT", "/mode"): settings.change_mode,
    ("DELETE", "/mode"): settings.delete_mode,
    ("GET", "/mode/{subject}"): settings.mode,
    ("PUT", "/mode/{subject}"): settings.change_mode,
    ("DELETE", "/mode/{subject}"): settings.delete_mode,
    ("GET", "/v1/metadata/id"): settings.metadata_id,
    ("GET", "/v1/metadata/version"): settings.metadata_version,
}


class Found(NamedTuple):
    """A handler and the parts of the address that it is given."""

    handler: Handler
    parameters: Mapping[str, str]


class _Pattern(NamedTuple):
    parts: Sequence[str]
    handlers: Mapping[str, Handler]

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        parameters = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if part.startswith("{"):
                parameters[part[1:-1]] = segment
            elif part != segment:
                return None
        return parameters


def _patterns() -> dict[tuple[int, str], list[_Pattern]]:
    by_path: dict[str, dict[str, Handler]] = {}
    for (method, path), handler in _TABLE.items():
        by_path.setdefault(path, {})[method] = handler
    found: dict[tuple[int, str], list[_Pattern]] = {}
    for path, handlers in by_path.items():
        parts = [part for part in path.split("/") if part]
        found.setdefault((len(parts), parts[0] if parts else ""), []).append(_Pattern(parts, handlers))
    return found


_PATTERNS: Final = _patterns()


def find(method: str, segments: Sequence[str]) -> Found:
    """The handler of an address. Raises RegistryError 404 or 405."""
    for pattern in _PATTERNS.get((len(segments), segments[0] if segments else ""), ()):
        parameters = pattern.match(segments)
        if parameters is not None:
            handler = pattern.handlers.get(method)
            if handler is None:
                raise RegistryError(405, "HTTP 405 Method Not Allowed")
            return Found(handler, parameters)
    raise RegistryError(404, "HTTP 404 Not Found")

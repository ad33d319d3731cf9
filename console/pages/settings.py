"""Every setting of this broker: its value, where that comes from, and what it does. Changed ones come first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.console.parameters import text
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.config import setting_of_broker
from ottla.settings.description import ConfigDescription, ConfigSource, describe_broker

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console

SOURCES = {
    ConfigSource.DEFAULT: "default",
    ConfigSource.STATIC_BROKER: "file, environment or flag",
    ConfigSource.DYNAMIC_BROKER: "set on this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "set on all brokers",
    ConfigSource.TOPIC: "set on the topic",
}


class SettingRow(NamedTuple):
    about: ConfigDescription
    source: str
    origin: str
    default: str | None
    has_effect: bool


async def show_all(console: Console, request: Request) -> Response:
    config = console.broker.config
    query = text(request, "q")
    wanted = query.lower()
    changed: list[SettingRow] = []
    unchanged: list[SettingRow] = []
    slices = TimeSlice()
    for about in describe_broker(config):
        if slices.is_over:
            await slices.maybe_yield()
        if wanted not in about.name and wanted not in about.documentation.lower():
            continue
        setting = setting_of_broker(about.name)
        row = SettingRow(
            about,
            SOURCES.get(about.source, ""),
            config.origins.get(about.name, ""),
            setting.to_text(setting.default) if setting is not None and not setting.sensitive else None,
            setting is None or setting.in_use,
        )
        (unchanged if about.source is ConfigSource.DEFAULT else changed).append(row)
    return await console.page(
        request, "settings.html", section="settings", query=query, changed=changed, unchanged=unchanged
    )

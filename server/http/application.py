"""What the HTTP port serves: a Starlette application made of the routes of several modules.

A module of routes has `def routes(broker: Broker) -> list[BaseRoute]`, called once when the port is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from starlette.applications import Starlette

from ottla.server.http import health, metrics

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ottla.server.broker import Broker

_CONSOLE = "ottla.server.console.routes"


def application(broker: Broker) -> Starlette:
    """The application of one broker; the web console is in it where `ottla.console.enable` says so."""
    routes: list[BaseRoute] = [*health.routes(broker), *metrics.routes(broker)]
    if not broker.config.ottla_console_enable:
        return Starlette(routes=routes)
    console = import_module(_CONSOLE).site(broker)
    return Starlette(routes=[*routes, *console.routes], lifespan=console.running)

"""The application of the HTTP port: Starlette, with the routes of several modules.

A module of routes has `def routes(broker: Broker) -> list[BaseRoute]`, called once when the port is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from starlette.applications import Starlette

from ottla.server.http import health, metrics, share_groups
from ottla.server.http.login import login_of

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ottla.server.broker import Broker


def application(broker: Broker, site: str | None = None) -> Starlette:
    """The application of one broker. `site` names a module to mount beside it: its `site(broker, login)` is called once
    and returns `routes`, and `running`, a lifespan."""
    login = login_of(broker)
    routes: list[BaseRoute] = [
        *health.routes(broker, tells_why=login is None),
        *metrics.routes(broker, login),
        *share_groups.routes(broker, login),
    ]
    if site is None:
        return Starlette(routes=routes)
    mounted = import_module(site).site(broker, login)
    return Starlette(routes=[*routes, *mounted.routes], lifespan=mounted.running)

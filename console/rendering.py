"""Pages out of templates, in slices: a thousand rows take milliseconds, and the loop may be held for 500 µs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from ottla.console.formatting import FILTERS
from ottla.console.guard import FormTokens, session_cookie
from ottla.console.printable import printable
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PREFIX: Final = "/console"
THEME_COOKIE: Final = "ottla_theme"
THEMES: Final = ("auto", "light", "dark")

_FOLDER: Final = Path(__file__).parent


class Renderer:
    """The templates. Making the first one compiles them all, which blocks: do it in a worker thread."""

    def __init__(self, tokens: FormTokens, **common: Any) -> None:
        """`common` is what every page may refer to."""
        self.tokens = tokens
        self._templates = _templates()
        self._common = common

    async def page(self, request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
        """Render a page in slices of the loop's time."""
        session, is_new = self.tokens.session_of(request)
        theme = request.cookies.get(THEME_COOKIE, "auto")
        html = await self.text(
            template,
            here=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            path=request.url.path,
            token=self.tokens.token(session),
            theme=theme if theme in THEMES else "auto",
            visitor=request.state.visitor,
            **context,
        )
        response = HTMLResponse(html.encode("utf-8", "replace"), status)
        if is_new:
            set_session_cookie(response, request, session)
        return response

    async def text(self, template: str, **context: Any) -> str:
        """A template's text without what makes it an answer."""
        pieces = []
        slices = TimeSlice()
        for piece in self._templates.get_template(template).generate(self._common | context):
            pieces.append(piece)
            if slices.is_over:
                await slices.maybe_yield()
        return "".join(pieces)


def set_session_cookie(response: Response, request: Request, session: str) -> None:
    """Let the browser, and no script in it, keep a session; over TLS alone where that is how it came."""
    is_secure = request.url.scheme == "https"
    name = session_cookie(request)
    response.set_cookie(name, session, path=PREFIX, httponly=True, samesite="strict", secure=is_secure)


def inside(address: str) -> str:
    """An address that a form names, if it is one of the console's: what begins so names no other host."""
    return address if address.startswith(f"{PREFIX}/") and "\\" not in address else f"{PREFIX}/"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        # Whatever a template shows goes through here, so that no page can forget it.
        finalize=_shown,
    )
    templates.filters.update(FILTERS)
    templates.globals.update(url=url)
    for name in templates.list_templates():
        templates.get_template(name)
    return templates


def _shown(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def url(*path: str, **query: Any) -> str:
    """An address within the console; what is None or empty is left out of the query."""
    return url_of("/".join((PREFIX, *(quote(part, safe="") for part in path))), **query)


def url_of(where: str, /, **query: Any) -> str:
    """A path with a query, out of which what is None or empty is left."""
    given = [(name, str(value)) for name, value in query.items() if value is not None and value != ""]
    return f"{where}?{urlencode(given, errors='replace')}" if given else where

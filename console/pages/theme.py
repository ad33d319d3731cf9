"""Light, dark, or as the system says: remembered by the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, RedirectResponse

from ottla.console.forms import FormError, read_form
from ottla.console.rendering import PREFIX, THEME_COOKIE, THEMES, inside

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console

_YEAR_SECONDS: Final = 365 * 86_400


async def choose(console: Console, request: Request) -> Response:
    try:
        fields = await read_form(request, console.renderer.tokens)
    except FormError as error:
        return PlainTextResponse(f"{error}\n", error.status)
    response = RedirectResponse(inside(fields.get("back", "")), 303)
    theme = fields.get("theme", "")
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, max_age=_YEAR_SECONDS, path=PREFIX, samesite="strict", httponly=True)
    return response

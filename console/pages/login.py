"""Logging in to the console, and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, RedirectResponse

from ottla.console.forms import FormError, read_form
from ottla.console.guard import session_cookie
from ottla.console.parameters import text
from ottla.console.rendering import PREFIX, inside, set_session_cookie, url
from ottla.server.http.login import LockedOutError, WrongPasswordError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console


async def show(console: Console, request: Request) -> Response:
    """The form, and logging in."""
    visitors = console.visitors
    if visitors.login is None:
        return RedirectResponse(url(""), 303)
    problem, status, back, name = "", 200, text(request, "back"), ""
    headers: dict[str, str] = {}
    if request.method == "POST":
        try:
            fields = await read_form(request, console.renderer.tokens)
            back, name = fields.get("back", ""), fields.get("user", "").strip()
            key = await visitors.log_in(request, name, fields.get("password", ""))
        except FormError as error:
            problem, status = str(error), error.status
        except LockedOutError as error:
            problem, status, headers = str(error), 429, {"retry-after": str(round(error.seconds) + 1)}
        except WrongPasswordError as error:
            problem, status = str(error), 403
        else:
            response = RedirectResponse(inside(back), 303)
            # A new key: one that somebody else has planted must not become this user's.
            set_session_cookie(response, request, key)
            return response
    page = await console.page(
        request, "login.html", status=status, section="", back=inside(back), name=name, problem=problem
    )
    page.headers.update(headers)
    return page


async def leave(console: Console, request: Request) -> Response:
    """Log out."""
    try:
        await read_form(request, console.renderer.tokens)
    except FormError as error:
        return PlainTextResponse(f"{error}\n", error.status)
    console.visitors.log_out(request)
    response = RedirectResponse(url("login"), 303)
    response.delete_cookie(session_cookie(request), path=PREFIX)
    return response

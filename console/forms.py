"""Reading a form that a browser sends: of limited size, and only with a valid token."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from ottla.console.parameters import as_integer

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.guard import FormTokens

MAX_FORM_BYTES: Final = 1_048_576
_MAX_FIELDS: Final = 50


class FormError(Exception):
    """The form is refused; `status` is for the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def read_form(request: Request, tokens: FormTokens) -> dict[str, str]:
    """The fields of a form. Raises FormError if it is too large, not a form, or its token is missing or wrong."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise FormError(415, "This is not a form.")
    too_large = FormError(413, f"A form may have at most {MAX_FORM_BYTES} bytes.")
    if as_integer(request.headers.get("content-length", ""), 0) > MAX_FORM_BYTES:
        raise too_large
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_FORM_BYTES:
                raise too_large
    try:
        fields = dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        )
    except ValueError:
        raise FormError(400, "The form cannot be read.") from None
    if not tokens.is_valid(request, fields.get("token", "")):
        raise FormError(403, "The form is too old, or not one of ours. Go back, reload the page and send it again.")
    return fields

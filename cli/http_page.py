"""Requests of commands to a broker's HTTP port, with the user and password that they have for the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.request import (
    HTTPBasicAuthHandler,
    HTTPPasswordMgrWithDefaultRealm,
    HTTPSHandler,
    OpenerDirector,
    build_opener,
)

from ottla.cli import CommandError

if TYPE_CHECKING:
    from ottla.client.security import Security

_TIMEOUT_SECONDS: Final = 5
_WITH_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def read_page(address: str, path: str, how: Security) -> str:
    """A page from `host:port` or a URL. Raises CommandError if there is no such page.

    A password is sent only when it is asked for, and never in plain text if the broker gets it encrypted.
    """
    scheme = "http" if how.tls is None else "https"
    url = (address if "://" in address else f"{scheme}://{address}").rstrip("/")
    try:
        with _opener(url, how).open(f"{url}{path}", timeout=_TIMEOUT_SECONDS) as answer:
            return str(answer.read(), "utf-8")
    except (OSError, ValueError) as error:
        raise CommandError(
            f"cannot read {path.partition('?')[0]} from {url} ({error}): is `ottla serve --http` there?"
        ) from None


def _opener(url: str, how: Security) -> OpenerDirector:
    passwords = HTTPPasswordMgrWithDefaultRealm()
    login = how.login
    may_show = login is not None and login.mechanism in _WITH_PASSWORD and not login.is_token
    if login is not None and may_show and (how.tls is None or url.startswith("https:")):
        passwords.add_password(None, url, login.user, login.password)
    handlers = [HTTPBasicAuthHandler(passwords)]
    if how.tls is None:
        return build_opener(*handlers)
    from ottla.client.tls import context_of

    return build_opener(*handlers, HTTPSHandler(context=context_of(how.tls)))

"""The public keys of token issuers, as a JWK set (RFC 7517) in a file or behind a URL.

Kafka's counterparts are JwksFileVerificationKeyResolver and RefreshingHttpsJwks. Everything here blocks, and is called
by one thread at a time.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener, url2pathname

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, RSAKey

from ottla.runtime.backoff import Backoff
from ottla.settings.config import ConfigError

logger = logging.getLogger(__name__)

#: Keys that verify signatures and cannot sign: with a symmetric key, every reader of the set could sign.
PublicKey = RSAKey | ECKey

_MAX_BYTES: Final = 1_048_576
_TIMEOUT_SECONDS: Final = 5.0
#: How often, at most, a token with an unknown key has the keys fetched again.
_UNKNOWN_KEY_SECONDS: Final = 60.0
#: What a file or an issuer may be wrong with: it cannot be reached, speaks no HTTP, or sends no keys.
_WRONG: Final = (OSError, HTTPException, ValueError, RecursionError)


class KeySource(Protocol):
    """A source of keys."""

    def current(self, *, unknown: bool = False) -> list[PublicKey]:
        """The keys, fetched again first if it is time or if a token's was `unknown`. If that fails, the former ones."""
        ...


class FileKeys:
    """A file, read again when it changes. ConfigError if it cannot be read at first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._state: tuple[int, int, int] | None = None
        self._keys: list[PublicKey] = []
        try:
            self._read()
        except _WRONG as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {path} cannot be used: {error}.") from None

    def current(self, *, unknown: bool = False) -> list[PublicKey]:
        try:
            self._read()
        except _WRONG as error:
            logger.warning("the keys in %s stay as they were: %s", self._path, error, extra={"path": self._path})
        return self._keys

    def _read(self) -> None:
        found = os.stat(self._path)
        state = (found.st_mtime_ns, found.st_size, found.st_ino)
        if state == self._state:
            return
        with open(self._path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        # What cannot be parsed is not read again before it changes.
        self._state = state
        self._keys = parse_keys(data)


class UrlKeys:
    """A URL, fetched for the first token, and again every `refresh_ms`; after a failure sooner, with growing pauses."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None,
        *,
        refresh_ms: int,
        backoff_ms: int,
        backoff_max_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._opener = _opener(context)
        self._refresh_seconds = refresh_ms / 1000
        self._backoff = Backoff(backoff_ms / 1000, backoff_max_ms / 1000)
        self._clock = clock
        self._keys: list[PublicKey] = []
        self._due = 0.0
        self._asked_for_unknown = float("-inf")

    def current(self, *, unknown: bool = False) -> list[PublicKey]:
        now = self._clock()
        if unknown and not self._backoff.failures and now - self._asked_for_unknown >= _UNKNOWN_KEY_SECONDS:
            self._asked_for_unknown = now
            self._due = now
        if now >= self._due:
            self._fetch()
        return self._keys

    def _fetch(self) -> None:
        try:
            request = Request(self._url, headers={"accept": "application/json"})
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                self._keys = parse_keys(answer.read(_MAX_BYTES + 1))
        except _WRONG as error:
            self._due = self._clock() + self._backoff.fail()
            logger.warning("no keys from %s: %s", self._url, error, extra={"url": self._url, "error": str(error)})
        else:
            self._backoff.reset()
            self._due = self._clock() + self._refresh_seconds


def parse_keys(data: bytes) -> list[PublicKey]:
    """The keys of a JWK set that signatures can be checked with; ValueError if there is none."""
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    document: Any = json.loads(data)
    listed = document.get("keys") if isinstance(document, dict) else None
    found: list[PublicKey] = []
    for each in listed if isinstance(listed, list) else ():
        try:
            keys = KeySet.import_key_set({"keys": [each]}).keys
        except (JoseError, ValueError, TypeError, KeyError):
            continue  # a kind of key that is not known here, beside others that are
        found += [key for key in keys if isinstance(key, (RSAKey, ECKey))]
    if not found:
        raise ValueError("it has no RSA or elliptic-curve public key")
    return found


def path_of(url: str) -> str | None:
    """The path of a file URL; None for any other URL."""
    parts = urlsplit(url)
    return url2pathname(parts.path) if parts.scheme == "file" else None


class _SameScheme(HTTPRedirectHandler):
    """Follows no redirect to another scheme, such as one that is not encrypted."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if urlsplit(newurl).scheme != req.type:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(context: ssl.SSLContext | None) -> OpenerDirector:
    return build_opener(_SameScheme(), *([] if context is None else [HTTPSHandler(context=context)]))

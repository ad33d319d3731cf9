"""Sources of the encryption filter's keys.

Values are encrypted with data keys that are made as they are needed. A key service wraps each of them with a key of its
own, which never leaves the service, or only for this machine's memory. The wrapped key is stored with every value.
"""

from __future__ import annotations

import json
import os
import tomllib
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import trio

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12

_TIMEOUT_SECONDS: Final = 10.0
_MAX_ANSWER_BYTES: Final = 64 * 1024
_UNKNOWN: Final = frozenset({400, 404})


class KeyServiceError(Exception):
    """The key service does not answer, or not with a key. It may be worth trying again."""


class UnknownKeyError(Exception):
    """None of the service's keys opens this one."""


class DataKey(NamedTuple):
    """A new key for values, and its wrapped form."""

    key: bytes
    wrapped: bytes


class KeyService(Protocol):
    """Wraps data keys."""

    async def make(self) -> DataKey:
        """A new data key. Raises KeyServiceError."""
        ...

    async def open(self, wrapped: bytes) -> bytes:
        """The data key in a wrapped one. Raises UnknownKeyError and KeyServiceError."""
        ...


class KeyFile:
    """Keys in a TOML file that only the proxy may read.

        current = "2026-02"

        [keys]
        2026-01 = "…"     # 32 bytes in Base64: openssl rand -base64 32
        2026-02 = "…"

    New data keys are wrapped with the current key. The file is read again when it has changed: add a key and make it
    the current one; keep the others for as long as there are values from their time. ValueError says what is wrong.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._state: tuple[int, int] | None = None
        self._current = ""
        self._keys: dict[str, Any] = {}
        self._load()

    async def make(self) -> DataKey:
        """See `KeyService`. The wrapped key is the current one's name, a zero byte, a nonce, and the encrypted key."""
        await self._follow()
        key, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        name = self._current.encode()
        return DataKey(key, b"%b\0%b%b" % (name, nonce, self._keys[self._current].encrypt(nonce, key, name)))

    async def open(self, wrapped: bytes) -> bytes:
        """See `KeyService`."""
        await self._follow()
        name, _, rest = wrapped.partition(b"\0")
        found = self._keys.get(name.decode("utf-8", "replace"))
        if found is None:
            raise UnknownKeyError(f"{self._path} has no key {name.decode('utf-8', 'replace')!r}")
        from cryptography.exceptions import InvalidTag

        try:
            opened: bytes = found.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], name)
        except (InvalidTag, ValueError):
            raise UnknownKeyError(f"the key {name.decode()!r} of {self._path} is a different one") from None
        return opened

    async def _follow(self) -> None:
        """Read the file if it has changed."""
        try:
            await trio.to_thread.run_sync(self._load)
        except ValueError as error:
            raise KeyServiceError(str(error)) from None

    def _load(self) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            found = os.stat(self._path)
            state = (found.st_mtime_ns, found.st_ino)
            if state == self._state:
                return
            content = tomllib.loads(Path(self._path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{self._path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise ValueError(f"{self._path} is not TOML") from None
        if found.st_mode & 0o077:
            raise ValueError(f"{self._path} can be read by others: chmod 600 {self._path}")
        keys, current = content.get("keys"), content.get("current")
        if not isinstance(keys, dict) or current not in keys:
            raise ValueError(f"{self._path} names no current key among [keys]")
        self._keys = {name: AESGCM(_key(self._path, name, text)) for name, text in keys.items()}
        self._current = str(current)
        self._state = state


class Transit:
    """The transit engine of HashiCorp Vault or OpenBao: `url` is its address, `name` the key's name there.

    `token_file` holds the token, and is read each time. Vault rotates the key itself, and opens what earlier versions
    have wrapped.
    """

    def __init__(self, url: str, name: str, token_file: str, mount: str = "transit") -> None:
        self._url = f"{url.rstrip('/')}/v1/{mount}"
        self._name = name
        self._token_file = token_file

    async def make(self) -> DataKey:
        """See `KeyService`."""
        data = await self._ask(f"datakey/plaintext/{self._name}", {"bits": 8 * KEY_BYTES})
        try:
            return DataKey(b64decode(data["plaintext"], validate=True), str(data["ciphertext"]).encode())
        except (KeyError, ValueError):
            raise KeyServiceError(f"{self._url} answers no key") from None

    async def open(self, wrapped: bytes) -> bytes:
        """See `KeyService`."""
        data = await self._ask(f"decrypt/{self._name}", {"ciphertext": wrapped.decode("ascii", "replace")})
        try:
            return b64decode(data["plaintext"], validate=True)
        except (KeyError, ValueError):
            raise KeyServiceError(f"{self._url} answers no key") from None

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return await trio.to_thread.run_sync(self._post, f"{self._url}/{path}", body)

    def _post(self, url: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        import urllib.error
        import urllib.request

        try:
            headers = {"X-Vault-Token": Path(self._token_file).read_text(encoding="ascii").strip()}
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
                found = json.loads(answer.read(_MAX_ANSWER_BYTES))["data"]
        except urllib.error.HTTPError as error:
            with error:
                text = f"{url} answers {error.code}"
                raise (UnknownKeyError if error.code in _UNKNOWN else KeyServiceError)(text) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeyServiceError(f"{url} does not answer with a key: {getattr(error, 'reason', error)}") from None
        if not isinstance(found, dict):
            raise KeyServiceError(f"{url} does not answer with a key")
        return found


def _key(path: str, name: str, text: Any) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except (TypeError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path}: the key {name} is not {KEY_BYTES} bytes in Base64: openssl rand -base64 32")
    return key


def key_service(options: Any) -> KeyService:
    """The service that a `keys` table describes. Raises ValueError or TypeError, with a sentence."""
    if not isinstance(options, Mapping):
        raise TypeError('keys: write it as a table, keys = { file = "keys.toml" }')
    if set(options) == {"file"}:
        return KeyFile(str(options["file"]))
    known = {"url", "name", "token-file", "mount"}
    if "url" not in options or set(options) - known or not {"name", "token-file"} <= set(options):
        raise ValueError(
            "keys: write either file, or url, name and token-file of Vault's transit engine, and its mount"
        )
    texts = {name.replace("-", "_"): value for name, value in options.items()}
    if not all(isinstance(value, str) for value in texts.values()):
        raise TypeError("keys: url, name, token-file and mount are texts")
    if not texts["url"].startswith(("http://", "https://")):
        raise ValueError(f"keys: {texts['url']!r} is not an http:// or https:// address")
    return Transit(**texts)

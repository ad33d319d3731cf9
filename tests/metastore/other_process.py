"""A metadata store in SQLite that another process has open: it does what it is told, and can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import trio

from ottla.metastore.errors import LeaseExpiredError, StoreUnavailableError
from ottla.metastore.sqlite import SqliteMetadataStore, open_sqlite_store
from ottla.metastore.store import Compare, Delete, DeletePrefix, KeyValue, Listing, Operation, Put, Watch

_ERRORS = {"LeaseExpiredError": LeaseExpiredError, "StoreUnavailableError": StoreUnavailableError}
_OPERATIONS: dict[str, type[Operation]] = {"Put": Put, "Delete": Delete, "DeletePrefix": DeletePrefix}


class OtherProcess:
    """This end: a `MetadataStore` without watches, on the clock of this process."""

    def __init__(self, path: Path, time_ms: Callable[[], int]) -> None:
        self._time_ms = time_ms
        self._turn = trio.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def get(self, key: str) -> KeyValue | None:
        entry = await self.ask("get", key)
        return None if entry is None else _entry(entry)

    async def list(self, prefix: str) -> Listing:
        revision, entries = await self.ask("list", prefix)
        return Listing(revision, tuple(map(_entry, entries)), revision)

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        plain = [(type(operation).__name__, [_text(field) for field in operation]) for operation in operations]
        revision: int | None = await self.ask("commit", compares, plain)
        return revision

    async def grant_lease(self, ttl_ms: int) -> int:
        return int(await self.ask("grant_lease", ttl_ms))

    async def keep_alive(self, lease: int) -> None:
        await self.ask("keep_alive", lease)

    async def revoke_lease(self, lease: int) -> None:
        await self.ask("revoke_lease", lease)

    async def close(self) -> None:
        """Close the store there; the process ends."""
        if self._process.poll() is None:
            self._process.communicate()
        self.kill()

    def kill(self) -> None:
        """SIGKILL, amid whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    async def ask(self, verb: str, *arguments: Any) -> Any:
        """Have it call a method, and return what that returned; raises what it raised."""
        async with self._turn:
            self.tell(verb, *arguments)
            assert self._process.stdout is not None
            answer = json.loads(await trio.to_thread.run_sync(self._process.stdout.readline))
        if "error" in answer:
            raise _ERRORS[answer["error"]](answer["text"])
        return answer["result"]

    def tell(self, verb: str, *arguments: Any) -> None:
        """Have it do something without an answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([self._time_ms(), verb, *arguments]) + "\n")
        self._process.stdin.flush()


class TwoProcesses:
    """A `MetadataStore` whose operations happen here and in another process in turn; its watches are here."""

    def __init__(self, here: SqliteMetadataStore, there: OtherProcess) -> None:
        self._here = here
        self._there = there
        self._count = 0

    def _next(self) -> SqliteMetadataStore | OtherProcess:
        self._count += 1
        return self._here if self._count % 2 else self._there

    async def get(self, key: str) -> KeyValue | None:
        return await self._next().get(key)

    async def list(self, prefix: str) -> Listing:
        return await self._next().list(prefix)

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        return await self._next().commit(compares, operations)

    def watch(self, prefix: str, after_revision: int) -> AbstractAsyncContextManager[Watch]:
        return self._here.watch(prefix, after_revision)

    async def grant_lease(self, ttl_ms: int) -> int:
        return await self._next().grant_lease(ttl_ms)

    async def keep_alive(self, lease: int) -> None:
        await self._next().keep_alive(lease)

    async def revoke_lease(self, lease: int) -> None:
        await self._next().revoke_lease(lease)

    async def close(self) -> None:
        await self._here.close()
        await self._there.close()


def _entry(fields: list[Any]) -> KeyValue:
    key, value, *numbers = fields
    return KeyValue(key, b64decode(value), *numbers)


def _text(field: Any) -> Any:
    return b64encode(field).decode() if isinstance(field, bytes) else field


def _bytes(operation: str, fields: list[Any]) -> Operation:
    if operation == "Put":
        fields[1] = b64decode(fields[1])
    return _OPERATIONS[operation](*fields)


class _Child:
    def __init__(self) -> None:
        self._now_ms = 0

    async def main(self, path: Path) -> None:
        store = await open_sqlite_store(path, lambda: self._now_ms)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            self._now_ms, verb, *arguments = json.loads(line)
            try:
                answer: dict[str, Any] = {"result": await self._do(store, verb, arguments)}
            except tuple(_ERRORS.values()) as error:
                answer = {"error": type(error).__name__, "text": str(error)}
            print(json.dumps(answer, default=_text), flush=True)
        await store.close()

    async def _do(self, store: SqliteMetadataStore, verb: str, arguments: list[Any]) -> Any:
        if verb == "churn":
            return await self._churn(store, *arguments)
        if verb == "limit_file_size":
            import resource

            return resource.setrlimit(resource.RLIMIT_FSIZE, (arguments[0], resource.RLIM_INFINITY))
        if verb == "commit":
            compares, operations = arguments
            arguments = [[Compare(*compare) for compare in compares], [_bytes(*one) for one in operations]]
        result = await getattr(store, verb)(*arguments)
        if verb == "list":
            return result.revision, [list(map(_text, entry)) for entry in result.entries]
        return list(map(_text, result)) if isinstance(result, KeyValue) else result

    async def _churn(self, store: SqliteMetadataStore, keys: list[str]) -> None:
        """Set all keys to the same number, and to the next one, until the process is killed."""
        number = 0
        while True:
            number += 1
            await store.commit([], [Put(key, b"%d" % number * 2_000) for key in keys])


if __name__ == "__main__":
    trio.run(_Child().main, Path(sys.argv[1]))

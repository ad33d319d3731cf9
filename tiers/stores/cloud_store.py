"""Object stores of clouds (`s3://`, `gs://`, `az://`), by obstore: `pip install 'ottla[tiers]'`.

Credentials are found as obstore's users know it: in the environment and where the machine has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
import trio
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotModifiedError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from ottla.tiers.errors import (
    ObjectMissingError,
    ObjectStoreRefusedError,
    ObjectStoreUnavailableError,
    PreconditionFailedError,
    TierError,
)
from ottla.tiers.object_store import ABSENT, PAGE_OBJECTS, Content, ObjectInfo, ObjectStore, StoredObject

if TYPE_CHECKING:
    from obstore import GetOptions, UpdateVersion

_THREADS: Final = 32
_REFUSALS: Final = (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
# No header can contain it.
_SEPARATOR: Final = "\n"
# A second try within obstore would find its own first write, and report a conflict.
_NO_RETRIES: Final[Any] = {"max_retries": 0, "retry_timeout": timedelta(seconds=30)}

T = TypeVar("T")


def _endpoint_of_environment() -> str:
    """The address of S3 in the environment, if there is one: an address without TLS is used without TLS."""
    return os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""


class CloudObjectStore(ObjectStore):
    """Each call is one request in a worker thread, which a cancelled caller leaves behind: it ends at its timeout.

    Nothing is tried twice here, and nothing is sent in pieces that could be left behind unseen: `ottla.tiers` does the
    one, and its objects are small enough for the other.
    """

    def __init__(self, url: str, *, timeout_seconds: float, config: Mapping[str, str] | None = None) -> None:
        """`config` are obstore's keys (`endpoint`, `region`, …), which precede the environment's."""
        options: Any = {"timeout": timedelta(seconds=timeout_seconds)}
        settings: Any = dict(config or {})
        if (settings.get("endpoint") or _endpoint_of_environment()).startswith("http://"):
            options["allow_http"] = True
        try:
            self._store = from_url(url, config=settings or None, client_options=options, retry_config=_NO_RETRIES)
        except (BaseError, ValueError, TypeError) as error:
            raise ObjectStoreRefusedError(f"{url}: {error}") from error
        self._limiter = trio.CapacityLimiter(_THREADS)

    async def get(self, name: str) -> StoredObject:
        return await self._run(lambda: self._get(name, {}))

    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        try:
            return await self._run(lambda: self._get(name, {"if_none_match": update_of(version)["e_tag"]}))
        except _NotModifiedError:
            return None

    async def get_range(self, name: str, start: int, length: int) -> Content:
        options: GetOptions = {"range": (start, start + length)}
        try:
            return memoryview(await self._run(lambda: obstore.get(self._store, name, options=options).bytes()))
        except ObjectStoreUnavailableError:
            # For a range beyond the end, clouds report no more than a failure (416).
            if (await self._run(lambda: obstore.head(self._store, name)))["size"] > start:
                raise
            return b""

    async def put(self, name: str, content: bytes) -> None:
        await self._put(name, content, "overwrite")

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        return await self._put(name, content, "create" if version == ABSENT else update_of(version))

    async def delete(self, names: Sequence[str]) -> None:
        try:
            await self._run(lambda: obstore.delete(self._store, list(names)))
        except ObjectMissingError:
            # Some stores fail at the first missing object, and leave the rest.
            for name in names:
                await self._delete_one(name)

    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        page = await self._run(lambda: self._page(prefix, after))
        names = [info.name for info in page]
        if names != sorted(names) or (names and names[0] <= after):
            raise ObjectStoreRefusedError("the object store does not list objects in the order of their names")
        return page

    async def modified_ms(self, name: str) -> int:
        return _milliseconds((await self._run(lambda: obstore.head(self._store, name)))["last_modified"])

    async def _put(self, name: str, content: bytes | bytearray, mode: Any) -> str:
        try:
            put = await self._run(lambda: obstore.put(self._store, name, content, mode=mode, use_multipart=False))
        except ObjectMissingError as error:
            if isinstance(mode, Mapping):
                raise PreconditionFailedError(str(error)) from error  # the version that was named is gone
            raise ObjectStoreRefusedError(f"there is no such bucket: {error}") from error
        return version_of(name, put["e_tag"], put["version"])

    async def _delete_one(self, name: str) -> None:
        try:
            await self._run(lambda: obstore.delete(self._store, [name]))
        except ObjectMissingError:
            return

    def _page(self, prefix: str, after: str) -> list[ObjectInfo]:
        pages = obstore.list(self._store, prefix, offset=after or None, chunk_size=PAGE_OBJECTS)
        return [
            ObjectInfo(each["path"], each["size"], _milliseconds(each["last_modified"])) for each in next(pages, [])
        ]

    def _get(self, name: str, options: GetOptions) -> StoredObject:
        result = obstore.get(self._store, name, options=options)
        version = version_of(name, result.meta["e_tag"], result.meta["version"])
        return StoredObject(bytes(result.bytes()), version)

    async def _run(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(_translated, work, limiter=self._limiter, abandon_on_cancel=True)


class _NotModifiedError(TierError):
    """The object is of the version that is known."""


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def version_of(name: str, e_tag: str | None, number: str | None) -> str:
    """The name of an object's version: its ETag, and in some stores a number. Conditions are of the one or the other:
    in S3 and Azure of the ETag, in Google's store of the number.
    """
    if e_tag is None:
        raise ObjectStoreRefusedError(f"the store tells no ETag of {name}, so that nothing can be written on condition")
    return e_tag if number is None else f"{e_tag}{_SEPARATOR}{number}"


def update_of(version: str) -> UpdateVersion:
    """The condition of a write that replaces this version."""
    e_tag, separator, number = version.partition(_SEPARATOR)
    return {"e_tag": e_tag, "version": number} if separator else {"e_tag": e_tag}


def _translated(work: Callable[[], T]) -> T:
    try:
        return work()
    except (NotFoundError, FileNotFoundError) as error:
        raise ObjectMissingError(_text(error)) from None
    except NotModifiedError as error:
        raise _NotModifiedError(_text(error)) from None
    except (AlreadyExistsError, PreconditionError) as error:
        raise PreconditionFailedError(_text(error)) from None
    except _REFUSALS as error:
        raise ObjectStoreRefusedError(_text(error)) from None
    except (BaseError, OSError) as error:
        raise ObjectStoreUnavailableError(_text(error)) from None


def _text(error: Exception) -> str:
    """The first line: obstore adds the whole chain of causes."""
    return str(error).partition("\n")[0]

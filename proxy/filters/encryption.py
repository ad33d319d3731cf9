"""Values are encrypted before they reach a broker, and decrypted on their way out.

    [[filter]]
    type = "encryption"
    topics = "payments-.*"
    keys = { file = "keys.toml" }

Each value is encrypted with AES-256-GCM under a data key, which a key service has wrapped (see `keys.py`). A header of
the record, `ottla.encryption`, holds what is needed to decrypt it::

    version (1 byte: 1) | nonce (12 bytes) | the wrapped data key

The record's key is authenticated with the value: a value that was put under another key is not decrypted. Keys, other
headers and timestamps stay readable, so partitioning, compaction and retention work as they do without the filter, and
a record without a value still deletes. What was produced before there was a filter is delivered as it is.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.kproto.errors import ErrorCode
from ottla.proxy.filters.filter import InvalidRecordsError, RefusedByFilterError
from ottla.proxy.filters.keys import NONCE_BYTES, DataKey, KeyServiceError, UnknownKeyError, key_service
from ottla.proxy.filters.records import RecordFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.kproto.records import Record
    from ottla.proxy.filters.filter import Call
    from ottla.proxy.filters.records import Batch

logger = logging.getLogger(__name__)

HEADER: Final = "ottla.encryption"

_VERSION: Final = b"\x01"
_START_BYTES: Final = 1 + NONCE_BYTES
_MAX_OPENED: Final = 1000
#: Random nonces of 12 bytes are safe for 2^32 values under one key; this is far below.
_MAX_VALUES_OF_KEY: Final = 1 << 28
_MAX_KEYS_OF_BATCH: Final = 100


class _Sealing(NamedTuple):
    """A data key in use for new values."""

    wrapped: bytes
    cipher: Any


class Encryption(RecordFilter):
    """Encrypts what is produced to `topics`, and decrypts what is fetched. A data key lasts for `key_hours`."""

    def __init__(self, *, keys: Mapping[str, Any], topics: str = ".*", key_hours: float = 1.0) -> None:
        super().__init__(topics=topics)
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise ValueError("encryption needs the extra ottla[proxy]") from None
        if not isinstance(key_hours, (int, float)) or isinstance(key_hours, bool) or not key_hours > 0:
            raise ValueError(f"key-hours: {key_hours!r} is not a number above 0")
        self._cipher = AESGCM
        self._service = key_service(keys)
        self._key_seconds = key_hours * 3600
        self._sealing: _Sealing | None = None
        self._sealing_ends_at = 0.0
        self._values_left = 0
        self._opened: OrderedDict[bytes, Any] = OrderedDict()
        self._asking = trio.Lock()

    async def produced(self, batch: Batch, call: Call) -> None:
        records = await batch.records()
        if all(record.value is None for record in records):
            return
        _refuse_marked(records)
        try:
            sealing = await self._key_for(len(records))
        except KeyServiceError as error:
            raise self._try_again(error) from None
        batch.replace(await batch.work(lambda: [_sealed(record, sealing) for record in records]))

    async def fetched(self, batch: Batch, call: Call) -> None:
        records = await batch.records()
        wrapped = {mark[_START_BYTES:] for record in records if (mark := _mark(record)) is not None}
        if not wrapped:
            return
        if len(wrapped) > _MAX_KEYS_OF_BATCH:
            raise RefusedByFilterError(ErrorCode.CORRUPT_MESSAGE, f"a batch with {len(wrapped)} data keys")
        try:
            ciphers = {one: await self._opened_key(one) for one in wrapped}
            batch.replace(await batch.work(lambda: [_unsealed(record, ciphers) for record in records]))
        except KeyServiceError as error:
            raise self._try_again(error) from None
        except (UnknownKeyError, _ForgedError) as error:
            logger.warning("%s-%d cannot be decrypted: %s", batch.topic, batch.partition, error)
            raise RefusedByFilterError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None

    async def _key_for(self, values: int) -> _Sealing:
        """The current data key; a new one is made when its time is over."""
        async with self._asking:
            if self._sealing is None or self._values_left < values or time.monotonic() >= self._sealing_ends_at:
                made: DataKey = await self._service.make()
                self._sealing = _Sealing(made.wrapped, self._cipher(made.key))
                self._sealing_ends_at = time.monotonic() + self._key_seconds
                self._values_left = _MAX_VALUES_OF_KEY
                self._keep(made.wrapped, self._sealing.cipher)
            self._values_left -= values
            return self._sealing

    async def _opened_key(self, wrapped: bytes) -> Any:
        cipher = self._opened.get(wrapped)
        if cipher is None:
            async with self._asking:
                cipher = self._opened.get(wrapped) or self._cipher(await self._service.open(wrapped))
                self._keep(wrapped, cipher)
        else:
            self._opened.move_to_end(wrapped)
        return cipher

    def _keep(self, wrapped: bytes, cipher: Any) -> None:
        self._opened[wrapped] = cipher
        if len(self._opened) > _MAX_OPENED:
            self._opened.popitem(last=False)

    def _try_again(self, error: KeyServiceError) -> RefusedByFilterError:
        """The error that makes clients try again, because the key service may come back."""
        logger.warning("no key: %s", error, extra={"error": str(error)})
        return RefusedByFilterError(ErrorCode.KAFKA_STORAGE_ERROR, "the key service does not answer")


class _ForgedError(Exception):
    """A value is not what was encrypted, or not under this record's key."""


def _mark(record: Record) -> bytes | None:
    """The header of an encrypted record."""
    for name, value in record.headers:
        if name == HEADER and value is not None and len(value) > _START_BYTES and value[:1] == _VERSION:
            return bytes(value)
    return None


def _refuse_marked(records: Sequence[Record]) -> None:
    """Refuse the header from clients: it could make others decrypt what they should not."""
    marked = [number for number, record in enumerate(records) if any(name == HEADER for name, _ in record.headers)]
    if marked:
        raise InvalidRecordsError([(number, f"the header {HEADER} is the proxy's") for number in marked[:100]])


def _sealed(record: Record, sealing: _Sealing) -> Record:
    if record.value is None:
        return record
    nonce = os.urandom(NONCE_BYTES)
    value = sealing.cipher.encrypt(nonce, record.value, record.key)
    return record._replace(value=value, headers=(*record.headers, (HEADER, _VERSION + nonce + sealing.wrapped)))


def _unsealed(record: Record, ciphers: Mapping[bytes, Any]) -> Record:
    from cryptography.exceptions import InvalidTag

    mark = _mark(record)
    if mark is None or record.value is None:
        return record
    try:
        value = ciphers[mark[_START_BYTES:]].decrypt(mark[1:_START_BYTES], record.value, record.key)
    except InvalidTag:
        raise _ForgedError(f"the value at offset {record.offset} is not what was encrypted") from None
    return record._replace(value=value, headers=tuple(it for it in record.headers if it[0] != HEADER))

"""Following the keys of a cluster in etcd, from one member to the next."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import httpx
import trio

from ottla.metastore.errors import MetadataError, StoreUnavailableError, WatchLaggedError
from ottla.metastore.etcd_client import LARGE_BYTES, EtcdError, lines_of, parse, refused
from ottla.metastore.store import Change

if TYPE_CHECKING:
    from ottla.metastore.etcd_client import EtcdClient
    from ottla.metastore.etcd_encoding import Keys

#: How long a member may say nothing before it is asked whether it is there, and how long its answer may take.
QUIET_SECONDS: Final = 10.0
PROBE_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.05
_BUFFER: Final = 64


class EtcdWatch:
    """A `Watch`. If the member that it listens to fails, it goes on with another one; if none can be reached, it ends.

    While nobody receives, etcd waits, so that it falls behind only if etcd forgets what comes next (compaction).
    """

    def __init__(self, client: EtcdClient, keys: Keys, prefix: str, after_revision: int) -> None:
        self._client = client
        self._keys = keys
        self._span = keys.span(prefix)
        #: Everything up to this revision has been passed on.
        self._revision = after_revision
        self._send, self._receive = trio.open_memory_channel[Change](_BUFFER)
        self._failure: MetadataError = StoreUnavailableError("The metadata store is closed.")
        self._stream: tuple[str, httpx.Response] | None = None
        self._reading = trio.CancelScope()
        self._heard_at = 0.0

    async def receive(self) -> Change:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise self._failure from None

    async def connect(self) -> None:
        """Begin to listen to a member; `run` receives what it says. Raises StoreUnavailableError."""
        create = {
            **self._span,
            "start_revision": str(self._revision + 1),
            "progress_notify": True,
            "fragment": True,
        }
        try:
            self._stream = await self._client.open_stream("/v3/watch", {"create_request": create})
        except EtcdError as error:
            raise refused(error) from None
        self._heard_at = trio.current_time()

    async def run(self) -> None:
        """Pass on what comes, until the watch fails. After `connect`."""
        try:
            while True:
                assert self._stream is not None
                url, response = self._stream
                with suppress(httpx.HTTPError), trio.CancelScope() as self._reading:
                    await self._listen(response)
                self._client.avoid(url)
                await trio.sleep(_PAUSE_SECONDS)
                await self.connect()
        except MetadataError as error:
            self.fail(error)

    async def probe(self) -> None:
        """Leave a member that is frozen or cut off from the others, although the connection to it still stands."""
        while True:
            await trio.sleep_until(self._heard_at + QUIET_SECONDS)
            if self._stream is None or trio.current_time() < self._heard_at + QUIET_SECONDS:
                continue
            self._heard_at = trio.current_time()
            reading = self._reading
            try:
                with trio.fail_after(PROBE_SECONDS):
                    # Not answered before the member has all that the others had when it was asked.
                    await self._client.read_at(self._stream[0], "/v3/kv/range", {"key": self._keys.root})
            except (StoreUnavailableError, EtcdError, trio.TooSlowError):
                reading.cancel()

    def fail(self, error: MetadataError) -> None:
        """End the watch, after what has already come."""
        self._failure = error
        self._send.close()

    async def _listen(self, response: httpx.Response) -> None:
        """Receive until the stream breaks. Raises WatchLaggedError if etcd has forgotten what comes next."""
        events: list[dict[str, Any]] = []
        async with lines_of(response) as next_line:
            while (line := await next_line()) is not None:
                self._heard_at = trio.current_time()
                message = (await parse(line)).get("result")
                if message is None or message.get("canceled"):
                    if message is not None and "compact_revision" in message:
                        raise WatchLaggedError(f"etcd no longer knows what came after revision {self._revision}.")
                    return
                events += message.get("events", ())
                # A transaction may come in several parts.
                if message.get("fragment"):
                    last = events[-1]["kv"]["mod_revision"]
                    whole = [event for event in events if event["kv"]["mod_revision"] != last]
                    events = events[len(whole) :]
                    await self._pass_on(whole, len(line))
                elif events:
                    await self._pass_on(events, len(line))
                    events = []
                elif not message.get("created"):
                    # A progress notice: everything up to this revision has been sent.
                    self._revision = max(self._revision, int(message["header"]["revision"]))

    async def _pass_on(self, events: list[dict[str, Any]], size_bytes: int) -> None:
        if size_bytes < LARGE_BYTES:
            changes = self._keys.changes(events)
        else:
            changes = await trio.to_thread.run_sync(self._keys.changes, events)
        for change in changes:
            await self._send.send(change)
            self._revision = change.revision

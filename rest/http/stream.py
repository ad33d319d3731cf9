"""Records that come one after the other, and the answers, each as soon as its record is appended.

The body is JSON objects without anything between them but spaces; so is the answer. A record that cannot be appended is
answered with an error code, and those after it go on. What is no JSON ends the stream after an answer that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, Final

import trio
from starlette.types import Message, Receive, Scope, Send

from ottla.client.errors import ClientError
from ottla.rest.access import Right
from ottla.rest.errors import RestError, of_kafka
from ottla.rest.http.call import JSON, Answer, Call
from ottla.rest.limits import MAX_ARRIVAL_SECONDS, MAX_STREAM_PAUSE_SECONDS
from ottla.rest.producing import Outcome
from ottla.rest.splitting import ObjectSplitter
from ottla.rest.stream_records import RecordGiven, record_given, time_text
from ottla.rest.work import Held
from ottla.rest.worked_time import counted

_SEPARATOR: Final = b"\r\n"


def produce(call: Call, cluster_id: str, topic: str) -> Answer:
    """Reads the records of a request and answers them."""
    stream = _Stream(call, cluster_id, topic)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", JSON.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with call.proxy.work.holding() as held:
            await stream.run(receive, send, held)
        await send({"type": "http.response.body", "body": b""})

    return answer


def _lines(reports: Iterable[dict[str, Any]]) -> bytes:
    texts = (json.dumps(report, separators=(",", ":"), ensure_ascii=False) for report in reports)
    return b"".join(text.encode("utf-8", "replace") + _SEPARATOR for text in texts)


class _Stream:
    """One request's records. What has come is appended together, and then answered in its order."""

    def __init__(self, call: Call, cluster_id: str, topic: str) -> None:
        self._call = call
        self._cluster_id = cluster_id
        self._topic = topic
        self._splitter = ObjectSplitter()

    async def run(self, receive: Receive, send: Send, held: Held) -> None:
        """Append and answer until the body ends, or the client goes."""
        record_due = inf
        try:
            while True:
                message = await self._received(receive, record_due)
                if message["type"] == "http.disconnect":
                    return
                data, is_last = message.get("body", b""), not message.get("more_body", False)
                held.change(len(data))
                while texts := await self._split(data):
                    reports = await self._appended(texts)
                    await send({"type": "http.response.body", "body": _lines(reports), "more_body": True})
                    data, record_due = b"", inf
                if self._splitter.failure is not None:
                    raise self._splitter.failure
                held.change(self._splitter.held_bytes - held.size_bytes)
                if is_last:
                    self._splitter.finish()
                    return
                if self._splitter.held_bytes:
                    record_due = min(record_due, trio.current_time() + MAX_ARRIVAL_SECONDS)
        except RestError as error:
            await send({"type": "http.response.body", "body": _lines([_failure(error)]), "more_body": True})

    async def _split(self, data: bytes) -> Sequence[bytes]:
        work = self._call.proxy.work.do(len(data), partial(self._splitter.feed, data))
        return await counted(self._call.worked, work)

    async def _appended(self, texts: Sequence[bytes]) -> list[dict[str, Any]]:
        """Append records, and return when their user is within all quotas again."""
        worked, caller = self._call.worked, self._call.caller
        reports = await counted(worked, self._reports(texts))
        await caller.has_produced(sum(map(len, texts)))
        await caller.has_worked(worked.take())
        return reports

    async def _received(self, receive: Receive, record_due: float) -> Message:
        """The next part of the body. RestError 408 if it does not come."""
        pause_ends = trio.current_time() + MAX_STREAM_PAUSE_SECONDS
        with trio.CancelScope(deadline=min(record_due, pause_ends)):
            return await receive()
        raise RestError(408, "The next record did not come in time")

    async def _reports(self, texts: Sequence[bytes]) -> list[dict[str, Any]]:
        """Append records; rights and partitions are those of now, however long the request has been going on."""
        proxy = self._call.proxy
        self._call.caller.require(Right.WRITE, self._topic)
        try:
            partition_count = len((await proxy.cluster.topic(self._topic)).partitions)
        except ClientError as error:
            raise of_kafka(error) from None
        size_bytes = sum(map(len, texts))
        given = await proxy.work.do(size_bytes, partial(_all_given, texts, partition_count))
        now_ms = proxy.now_ms()
        records = [it.record(now_ms) for it in given if isinstance(it, RecordGiven)]
        outcomes = iter(await proxy.producing.append(self._topic, partition_count, records) if records else ())
        return [self._report(it, next(outcomes)) if isinstance(it, RecordGiven) else _failure(it) for it in given]

    def _report(self, given: RecordGiven, outcome: Outcome) -> dict[str, Any]:
        if isinstance(outcome, RestError):
            return _failure(outcome)
        report: dict[str, Any] = {
            "error_code": 200,
            "cluster_id": self._cluster_id,
            "topic_name": self._topic,
            "partition_id": outcome.partition,
            "offset": outcome.offset,
            "timestamp": time_text(outcome.timestamp_ms),
        }
        for part, datum in (("key", given.key), ("value", given.value)):
            if datum is not None:
                report[part] = {"type": datum.form.name, "size": len(datum.data or b"")}
        return report


def _failure(error: RestError) -> dict[str, Any]:
    return {"error_code": error.code, "message": error.message}


def _all_given(texts: Sequence[bytes], partition_count: int) -> list[RecordGiven | RestError]:
    found: list[RecordGiven | RestError] = []
    for text in texts:
        try:
            found.append(record_given(text, partition_count))
        except RestError as error:
            found.append(error)
    return found

"""Every API answers every valid request of every version: with what is right or an error code, never with a fault."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.server.apis.table import needing_http, served

from .generated import TOPIC, requests

Serve = Callable[..., Any]

#: An answer comes at once but where the request itself says how long to wait: then the test goes on soon.
ANSWER_SECONDS = 30
WAITED_SECONDS = 0.1
WAIT_WHEN_ASKED = {ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.PRODUCE}


@pytest.mark.parametrize("key", served(), ids=lambda key: key.name)
async def test_every_valid_request_is_answered(
    serve_node: Serve, caplog: pytest.LogCaptureFixture, key: ApiKey
) -> None:
    caplog.set_level(logging.WARNING)
    unanswered = []
    settings = {"ottla.metadata.store": "memory", "ottla.http.listen": "127.0.0.1:0" if key in needing_http() else ""}
    async with serve_node(settings) as node:
        topic_id = await node.create_topic(TOPIC)
        client = await node.connect()
        for version in range(key.valid_versions.lowest, key.valid_versions.highest + 1):
            for request in requests(key, version, topic_id):
                with trio.move_on_after(WAITED_SECONDS if key in WAIT_WHEN_ASKED else ANSWER_SECONDS) as scope:
                    try:
                        await client.call(request, version)
                        continue
                    except EOFError:
                        pass
                if not (scope.cancelled_caught and key in WAIT_WHEN_ASKED) and key is not ApiKey.PRODUCE:
                    unanswered.append((version, str(request)[:300], caplog.messages[-1:]))
                client = await node.connect()
    faults = {
        f"{record.getMessage()}: {record.exc_info[1]!r}"
        for record in caplog.records
        if record.exc_info is not None and record.exc_info[1] is not None
    }
    assert (sorted(faults), unanswered) == ([], [])

"""Counts page views: a consumer group whose members keep a total for each page, whatever happens on the way.

Records are delivered at least once, so a view may come twice. Each carries its id, and a view that was counted already
is not counted again: with that, at least once is enough. Totals go to the topic `page-totals`, the newest last.
"""

from __future__ import annotations

import json
from collections import Counter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

VIEWS, TOTALS = "page-views", "page-totals"


class PageViews:
    """One member of the group. Use as an async context manager, and call `count` for as long as it is to work.

    `totals` and `seen` are shared by all members: here a pair of dictionaries, elsewhere a database.
    """

    def __init__(self, bootstrap: str, totals: Counter[str], seen: set[str]) -> None:
        self._totals = totals
        self._seen = seen
        self._consumer = AIOKafkaConsumer(
            VIEWS,
            bootstrap_servers=bootstrap,
            group_id="page-views",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            retry_backoff_ms=20,
            metadata_max_age_ms=1000,
        )
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, retry_backoff_ms=20)

    async def __aenter__(self) -> PageViews:
        await self._producer.start()
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()
        await self._producer.stop()

    async def count(self) -> None:
        """Count what is there, tell the totals, and commit when they are acknowledged.

        What fails on the way raises KafkaError, and is read, told and committed again by the next call.
        """
        batches = await self._consumer.getmany(timeout_ms=100)
        views = [json.loads(record.value) for records in batches.values() for record in records]
        for view in views:
            if view["id"] not in self._seen:
                self._seen.add(view["id"])
                self._totals[view["page"]] += 1
        try:
            for page in sorted({view["page"] for view in views}):
                await self._producer.send_and_wait(TOTALS, str(self._totals[page]).encode(), key=page.encode())
            if views:
                await self._consumer.commit()
        except KafkaError:
            await self._consumer.seek_to_committed()
            raise

"""Takes the pictures of docs/console.md, of a broker that it starts and fills: `python -m docs.take_screenshots`.

Needs Chromium, and pngquant to make the files small. Other pages and sizes, to look at them: `--all FOLDER`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import trio
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.metadata.changes.topic_changes import NewTopic
from ottla.server.main import Node
from ottla.settings.config import BrokerConfig
from tests.console.devtools import PHONE, browser

IMAGES = Path(__file__).parent / "images"
CITIES = ("Praha", "Brno", "Ostrava", "Plzeň", "Liberec", "Olomouc")


class Picture(NamedTuple):
    name: str
    page: str
    size: tuple[int, int]
    dark: bool = False


PICTURES = (
    Picture("console-overview", "", (1280, 860)),
    Picture("console-topic", "topics/clickstream", (1280, 900)),
    Picture("console-messages-dark", "topics/orders/messages?json=%24.total+%3E%3D+900", (1280, 800), dark=True),
    Picture("console-group-dark", "group?id=analytics", (1280, 860), dark=True),
    Picture("console-phone", "topics/orders/messages", PHONE),
)
PAGES = {
    "overview": "", "topics": "topics?sort=records", "topic": "topics/clickstream",
    "messages": "topics/orders/messages",
    "message": "topics/orders/messages/0/0", "produce": "topics/orders/produce", "manage": "topics/orders/manage",
    "groups": "groups", "group": "group?id=analytics&sort=lag", "move": "group/manage?id=analytics",
    "transactions": "transactions", "access": "access", "settings": "settings",
}  # fmt: skip


@asynccontextmanager
async def filled_broker(folder: Path) -> AsyncIterator[str]:
    """The console of a broker with topics, a group that is behind and a transaction that is open."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder / "data"), "ottla.http.listen": "127.0.0.1:0",
        "ottla.console.enable": "true", "log.segment.bytes": "1048576",
    }  # fmt: skip
    node = Node(BrokerConfig(settings))
    async with trio.open_nursery() as nursery:
        ready = await nursery.start(node.serve)
        topics = [
            NewTopic("orders", 6),
            NewTopic("clickstream", 12, configs={"retention.ms": "604800000", "compression.type": "lz4"}),
            NewTopic("customers", 3, configs={"cleanup.policy": "compact"}),
            NewTopic("payments", 4),
            NewTopic("shipments", 2),
        ]
        await ready.broker.controller.create_topics(topics)
        async with open_transaction(f"127.0.0.1:{ready.listening[0].port}"):
            yield f"{ready.http_url}/console/"
        node.stop()


@asynccontextmanager
async def open_transaction(bootstrap: str) -> AsyncIterator[None]:
    producer = await trio.to_thread.run_sync(fill, bootstrap)
    yield
    await trio.to_thread.run_sync(producer.abort_transaction)


def fill(bootstrap: str) -> Producer:
    """Write to every topic, let a group fall behind, and leave a transaction open."""
    random = Random(7)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(4_000):
        customer = random.randrange(400)
        order = {
            "id": 10_000 + number, "customer": {"id": customer, "city": random.choice(CITIES)},
            "items": [{"sku": f"{random.choice('ABC')}-{random.randrange(90)}", "count": random.randrange(1, 4)}],
            "total": random.randrange(50, 999),
        }  # fmt: skip
        headers = [("trace-id", f"{random.getrandbits(64):016x}".encode())]
        producer.produce("orders", json.dumps(order, ensure_ascii=False), str(customer), headers=headers)
        producer.poll(0)
    for number in range(60_000):
        visit = {"page": f"/p/{random.randrange(900)}", "ms": random.randrange(4000), "visitor": random.getrandbits(40)}
        producer.produce("clickstream", json.dumps(visit), str(number % 5000))
        producer.poll(0)
    for topic, count in (("customers", 400), ("shipments", 900)):
        for number in range(count):
            producer.produce(topic, f"{topic} {number}", str(number % 120))
    producer.flush()
    for group, done in (("analytics", 0.6), ("billing", 1.0), ("search-index", 0.97)):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        ends = [
            TopicPartition(
                "clickstream",
                index,
                int(consumer.get_watermark_offsets(TopicPartition("clickstream", index))[1] * done),
            )
            for index in range(12)
        ]
        consumer.commit(offsets=ends, asynchronous=False)
        consumer.close()
    paying = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments-1"})
    paying.init_transactions()
    paying.begin_transaction()
    for number in range(40):
        paying.produce("payments", f'{{"order": {10_000 + number}}}', str(number))
    paying.flush()
    return paying


async def main(folder: Path, pictures: list[Picture]) -> None:
    with TemporaryDirectory() as scratch:
        async with filled_broker(Path(scratch)) as base, browser(Path(scratch) / "profile") as tab:
            # The curves begin with the second sample.
            await trio.sleep(30)
            for picture in pictures:
                await tab.open(base + picture.page, size=picture.size, dark=picture.dark)
                target = folder / f"{picture.name}.png"
                await tab.screenshot(target)
                if shutil.which("pngquant"):
                    command = ["pngquant", "--force", "--ext", ".png", "--quality", "70-95", str(target)]
                    await trio.run_process(command, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--all"]:
        every = [
            Picture(f"{name}-{size[0]}{'-dark' if dark else ''}", page, size, dark)
            for (name, page), size, dark in product(PAGES.items(), ((1280, 900), PHONE), (False, True))
        ]
        trio.run(main, Path(sys.argv[2]), every)
    else:
        trio.run(main, IMAGES, list(PICTURES))

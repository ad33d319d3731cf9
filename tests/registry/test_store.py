"""The topic: Confluent's bytes, replay, other writers, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import trio

from ottla.registry.registry import Registry
from ottla.registry.store.log import TOPIC
from ottla.registry.store.state import State
from ottla.testing.broker import Broker
from tests.registry.conftest import Client, running
from tests.registry.test_subjects import INT, LONG, TEXT, record


def stored(broker: Broker) -> list[tuple[str, str | None]]:
    return [((it.key or b"").decode(), None if it.value is None else it.value.decode()) for it in broker.records(TOPIC)]


async def in_thread(function: object, *args: object) -> object:
    return await trio.to_thread.run_sync(function, *args)  # type: ignore[arg-type]


async def test_records_are_confluents(broker: Broker, client: Client) -> None:
    guid = (await client.ask("POST", "/subjects/s/versions", {"schema": INT}))[1]["guid"]
    references = [{"name": "x", "subject": "s", "version": 1}]
    await client.register(":.c:t", LONG)
    await client.register("r", TEXT, references=references, metadata={"properties": {"a": "b"}})
    await client.ask("PUT", "/config", {"compatibility": "FULL"})
    await client.ask("PUT", "/config/s", {"compatibility": "NONE"})
    await client.ask("PUT", "/mode", {"mode": "READWRITE"})
    await client.ask("DELETE", "/subjects/r/versions/1")
    await client.ask("DELETE", "/subjects/:.c:t")
    await client.ask("DELETE", "/subjects/:.c:t?permanent=true")
    guids = [json.loads(value)["guid"] for _, value in stored(broker) if value is not None and "guid" in value]
    r = (
        f'"subject":"r","version":1,"id":2,"guid":"{guids[2]}","references":[{{"name":"x","subject":"s","version":1}}],'
        r'"metadata":{"properties":{"a":"b"}},"schema":"\"string\"","deleted":'
    )
    assert stored(broker) == [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            f'{{"subject":"s","version":1,"id":1,"guid":"{guid}",' r'"schema":"\"int\"","deleted":false}',
        ),
        ('{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}', '{"tenant":"default","context":".c"}'),
        (
            '{"keytype":"SCHEMA","subject":":.c:t","version":1,"magic":1}',
            f'{{"subject":":.c:t","version":1,"id":1,"guid":"{guids[1]}",' r'"schema":"\"long\"","deleted":false}',
        ),
        ('{"keytype":"SCHEMA","subject":"r","version":1,"magic":1}', f"{{{r}false}}"),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', '{"subject":"s","compatibilityLevel":"NONE"}'),
        ('{"keytype":"MODE","subject":null,"magic":0}', '{"mode":"READWRITE"}'),
        ('{"keytype":"SCHEMA","subject":"r","version":1,"magic":1}', f"{{{r}true}}"),
        ('{"keytype":"DELETE_SUBJECT","subject":":.c:t","magic":0}', '{"subject":":.c:t","version":1}'),
        (
            '{"keytype":"DELETE_SUBJECT","subject":":.c:__highest_id","magic":0}',
            '{"subject":":.c:__highest_id","version":0,"highestId":1}',
        ),
        ('{"keytype":"SCHEMA","subject":":.c:t","version":1,"magic":1}', None),
    ]


async def test_the_topic_is_made_for_the_first_schema(broker: Broker, client: Client) -> None:
    assert await client.ask("GET", "/subjects") == (200, [])
    assert broker.topics() == {}
    await client.register("s", INT)
    assert broker.topics() == {TOPIC: 1}
    assert broker._thread is not None
    assert broker._thread.ready.broker.metadata.topics[TOPIC].configs["cleanup.policy"] == "compact"


async def test_what_other_registries_wrote_is_read_and_continued(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    for key, value in [
        ('{"keytype":"NOOP","magic":0}', None),
        # Confluent before 5.5, Karapace's order of fields, Redpanda's further fields.
        (
            '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            r'{"subject":"a","version":1,"id":7,"schema":"\"int\"","deleted":false}',
        ),
        (
            '{"subject":"b","version":3,"magic":1,"keytype":"SCHEMA"}',
            r'{"subject":"b","version":3,"id":9,"schema":"\"long\"","deleted":false,"schemaType":"AVRO","seq":4}',
        ),
        ('{"keytype":"CONFIG","subject":"a","magic":0,"seq":1,"node":0}', '{"compatibilityLevel":"NONE"}'),
        ('{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', '{"subject":"a","version":1}'),
        ('{"keytype":"SOMETHING","x":1}', "{}"),
        ("not json", "{}"),
        ('{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}', '{"subject":"c"}'),
        ('{"keytype":"CLEAR_SUBJECT","subject":"nothing","magic":0}', '{"subject":"nothing"}'),
    ]:
        broker.produce(TOPIC, value, key=key)
    async with running(broker) as registry:
        client = Client(registry)
        assert await client.ask("GET", "/subjects") == (200, ["b"])
        assert await client.ask("GET", "/subjects/a/versions?deleted=true") == (200, [1])
        assert (await client.ask("GET", "/config/a"))[1] == {"compatibilityLevel": "NONE"}
        assert await client.register("b", LONG) == 9
        assert await client.register("c", TEXT) == 10


async def test_a_new_registry_knows_what_the_last_one_did(broker: Broker) -> None:
    async with running(broker) as registry:
        client = Client(registry)
        await client.register("s", INT)
        await client.register("s", LONG)
        await client.register("t", record("a"))
        await client.ask("DELETE", "/subjects/s/versions/1")
        await client.ask("DELETE", "/subjects/t")
        await client.ask("DELETE", "/subjects/t?permanent=true")
        before = sorted(registry.state.values())
    async with running(broker) as registry:
        assert sorted(registry.state.values()) == before
        # The id of what was removed for good is not given again.
        assert await Client(registry).register("u", TEXT) == 4


async def test_two_registries_that_write_at_once_give_each_id_once(broker: Broker) -> None:
    count = 25
    async with running(broker) as one, running(broker) as two:
        ids: list[tuple[int, str]] = []

        async def register(registry: Registry, name: str) -> None:
            for number in range(count):
                # Half of the subjects are the same for both, and so are some of the schemas.
                subject = f"shared-{number}" if number % 2 else f"{name}-{number}"
                field = f"f{number}" if number % 5 == 0 else f"{name}{number}"
                schema = record(field)
                ids.append((await Client(registry).register(subject, schema), schema))

        for registry in (one, two):
            await Client(registry).ask("PUT", "/config", {"compatibility": "NONE"})
        async with trio.open_nursery() as nursery:
            for registry in (one, two):
                for part in range(2):
                    nursery.start_soon(register, registry, f"{'ab'[registry is two]}{part}")
        schemas: dict[int, str] = {}
        for schema_id, schema in ids:
            text = json.dumps(json.loads(schema), separators=(",", ":"))
            assert schemas.setdefault(schema_id, text) == text
    async with running(broker) as third:
        client = Client(third)
        for schema_id, text in schemas.items():
            status, answer = await client.ask("GET", f"/schemas/ids/{schema_id}")
            assert (status, answer.get("schema")) == (200, text), (schema_id, stored(broker))


async def test_a_topic_that_is_made_anew_is_read_anew(broker: Broker) -> None:
    async with running(broker) as registry:
        client = Client(registry)
        await client.register("s", INT)
        await in_thread(broker.delete_topic, TOPIC)
        with trio.fail_after(20):
            await registry.log.wait_empty()
            assert await client.ask("GET", "/subjects") == (200, [])
            assert await client.register("t", LONG) == 1


async def test_it_goes_on_after_the_broker_was_restarted(broker: Broker) -> None:
    with Broker() as own:
        async with running(own) as registry:
            client = Client(registry)
            assert await client.register("s", INT) == 1
            await in_thread(own.restart)
            with trio.fail_after(30):
                assert await client.register("t", LONG) == 2
            assert await client.ask("GET", "/subjects") == (200, ["s", "t"])


async def test_a_caller_that_goes_leaves_no_half_of_a_registration(broker: Broker, client: Client) -> None:
    for number in range(30):
        with trio.move_on_after(0.0005 * number):
            await client.register(f"s{number}", record(f"f{number}"))
    known = [await client.register(f"s{number}", record(f"f{number}")) for number in range(30)]
    assert len(set(known)) == 30
    async with running(broker) as other:
        assert sorted(other.state.values()) == sorted(client.registry.state.values())


PROGRAM = textwrap.dedent("""
    import sys
    from functools import partial
    import trio
    from ottla.client.trio_connection import TrioConnection
    from ottla.registry.registry import Registry
    from ottla.registry.requests import schema_request
    from ottla.registry.store.log import SchemaLog

    async def main(port, first):
        log = SchemaLog(partial(TrioConnection, client_id="killed"), [("127.0.0.1", port)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.run)
            await log.wait_ready()
            registry = Registry(log)

            async def register(lane):
                for number in range(first, first + 100_000):
                    name = f"r{lane}_{number}"
                    text = '{"type":"fixed","name":"%s","size":1}' % name
                    version = await registry.register(name, schema_request({"schema": text}), normalize=False)
                    print(version.id, name, flush=True)

            for lane in range(4):
                nursery.start_soon(register, lane)

    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
""")


def killed_after(broker: Broker, first: int, lines: int) -> list[tuple[int, str]]:
    """What a registry answered before it was killed, in the middle of further registrations."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(broker.port), str(first)], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        read = [program.stdout.readline() for _ in range(lines)]
    finally:
        os.kill(program.pid, signal.SIGKILL)
        read += program.stdout.readlines()
        program.wait()
        program.stdout.close()
    return [(int(line.split()[0]), line.split()[1]) for line in read if line.endswith("\n")]


async def test_kills_under_registration_lose_nothing_and_give_no_id_twice(broker: Broker) -> None:
    answered: list[tuple[int, str]] = []
    for kill in range(4):
        answered += await trio.to_thread.run_sync(killed_after, broker, kill * 1_000_000, 20 + 7 * kill)
    assert len(answered) > 100
    assert len({schema_id for schema_id, _ in answered}) == len(answered)
    async with running(broker) as registry:
        for schema_id, name in answered:
            entry = registry.state.by_id(schema_id, ".")
            assert entry is not None
            assert name in entry.content.text


@pytest.mark.parametrize("deletes", [False, True])
def test_a_later_record_with_an_id_of_another_schema_is_skipped(*, deletes: bool) -> None:
    state = State()

    def put(subject: str, schema_id: int, text: str) -> None:
        value = {"subject": subject, "version": 1, "id": schema_id, "schema": text, "deleted": False}
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        state.apply(json.dumps(key).encode(), json.dumps(value).encode())

    put("a", 1, INT)
    put("b", 1, LONG)
    assert state.version("b", 1) is None
    if deletes:
        state.apply(b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', None)
        assert state.by_id(1, ".") is None
        assert state.highest_id(".") == 1


@pytest.mark.parametrize("value", ["", "[]", "null", '"text"', "{} {}", '{"id": 1', "{}", '{"id": "x", "schema": ""}'])
def test_what_is_no_value_changes_nothing(value: str, caplog: pytest.LogCaptureFixture) -> None:
    state = State()
    state.apply(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', value.encode())
    state.apply(value.encode() or b"[]", b"{}")
    assert state.version_count == 0
    assert "a record of the schemas' topic is skipped" in caplog.text


def test_white_space_around_keys_and_values_says_nothing() -> None:
    state = State()
    state.apply(b' {"keytype": "SCHEMA", "version": 1, "subject": "s"}\n', b'\n{"id": 7, "schema": "\\"int\\""}\t ')
    version = state.version("s", 1)
    assert version is not None
    assert (version.id, version.content.text) == (7, '"int"')

"""Several registries: one writes, the others forward to it, and another one takes over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import trio

from ottla.client.trio_connection import TrioConnection
from ottla.kproto.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.registry import standalone
from ottla.registry.errors import RegistryError
from ottla.registry.store.log import SchemaLog
from ottla.registry.writer.election import GROUP, Election
from ottla.registry.writer.identity import (
    DUPLICATE_URLS,
    NO_ERROR,
    Assignment,
    Identity,
    elect,
    parse_assignment,
    parse_identity,
)
from ottla.testing.broker import Broker

OPENER = build_opener(ProxyHandler({}))
ONE = Identity("http", "10.0.0.1", 8081)
TWO = Identity("https", "b.example", 8082)
#: As Confluent's `SchemaRegistryIdentity` and `Assignment` write them; unknown fields are newer ones.
CONFLUENTS = b'{"version":1,"host":"10.0.0.1","port":8081,"master_eligibility":true,"scheme":"http","leader":false}'
CONFLUENTS_ASSIGNMENT = b'{"version":1,"error":0,"master":"sr-1-x","master_identity":' + CONFLUENTS + b"}"


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    # Sessions of less than 6 seconds, for a take-over that a test can wait for.
    with Broker(config={"group.min.session.timeout.ms": 100, "group.initial.rebalance.delay.ms": 300}) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    shared_broker.reset()
    return shared_broker


def test_what_they_tell_each_other_is_what_confluents_do() -> None:
    assert parse_identity(CONFLUENTS) == ONE
    assert ONE.encode() == CONFLUENTS.replace(b',"leader":false', b"")
    assert parse_assignment(CONFLUENTS_ASSIGNMENT) == Assignment(NO_ERROR, "sr-1-x", ONE)
    assert parse_assignment(Assignment(NO_ERROR, "m", TWO).encode()) == Assignment(NO_ERROR, "m", TWO)
    assert parse_assignment(b'{"error":1}') == Assignment(DUPLICATE_URLS, None, None)
    for wrong in (b"", b"[]", b'{"host":"a"}', b'{"host":"a","port":"b"}', b"[" * 10_000):
        with pytest.raises(ValueError, match=r"registr|literal"):
            parse_identity(wrong)


def test_who_is_elected() -> None:
    members = {"m2": TWO, "m1": ONE}
    assert elect(members, None) == Assignment(NO_ERROR, "m1", ONE)
    assert elect(members, "m2") == Assignment(NO_ERROR, "m2", TWO)
    assert elect(members, "gone").member_id == "m1"
    assert elect({"m1": ONE._replace(may_lead=False)}, "m1") == Assignment(NO_ERROR, None, None)
    assert elect({"m1": ONE, "m2": ONE}, None).error == DUPLICATE_URLS


def asked(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url + path, data=data, method=method, headers={"Content-Type": "application/json"})
    try:
        with OPENER.open(request, timeout=60) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


async def ask(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    return await trio.to_thread.run_sync(partial(asked, url, method, path, body))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition, with a deadline."""
    with trio.fail_after(60):
        while not await holds():  # noqa: ASYNC110 - it is another process, or the clock, that makes it true
            await trio.sleep(0.02)


async def register(url: str, subject: str, text: str) -> int:
    status, answer = await ask(url, "POST", f"/subjects/{subject}/versions", {"schema": text})
    assert status == 200, answer
    return int(answer["id"])


def fixed(name: str) -> str:
    return json.dumps({"type": "fixed", "name": name, "size": 1}, separators=(",", ":"))


@asynccontextmanager
async def registries(broker: Broker, count: int) -> AsyncIterator[list[tuple[str, trio.CancelScope]]]:
    """Registries as `ottla registry` runs them, and what stops each."""

    async def run(task_status: trio.TaskStatus[tuple[str, trio.CancelScope]]) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                serve = partial(standalone.run, [("127.0.0.1", broker.port)], ("127.0.0.1", 0))
                running = await inner.start(serve)
                task_status.started((running.url, scope))

    async with trio.open_nursery() as nursery:
        yield [await nursery.start(run) for _ in range(count)]
        nursery.cancel_scope.cancel()


async def group(broker: Broker) -> Any:
    async with trio.open_nursery() as nursery:
        connection = await nursery.start(TrioConnection("127.0.0.1", broker.port, client_id="test").run)
        answer = await connection.call(DescribeGroupsRequest(groups=[GROUP]))
        nursery.cancel_scope.cancel()
    return answer.groups[0]


async def test_those_that_do_not_write_forward(broker: Broker) -> None:
    async with registries(broker, 3) as running:
        urls = [url for url, _ in running]
        ids: dict[str, int] = {}

        async def work(url: str, lane: int) -> None:
            for number in range(8):
                # Half of the schemas are registered by all of them at the same time, in one subject.
                name, subject = (f"S{number}", "shared") if number % 2 else (f"L{lane}_{number}", f"own-{lane}")
                found = await register(url, subject, fixed(name))
                assert ids.setdefault(name, found) == found
                # What was registered by way of another one can be read at once.
                assert await ask(url, "GET", f"/schemas/ids/{found}/schema") == (200, json.loads(fixed(name)))

        assert (await ask(urls[0], "PUT", "/config", {"compatibility": "NONE"}))[0] == 200
        async with trio.open_nursery() as nursery:
            for lane in range(6):
                nursery.start_soon(work, urls[lane % 3], lane)
        assert len(set(ids.values())) == len(ids)
        described = await group(broker)
        assert (described.protocol_type, len(described.members)) == ("sr", 3)
        for url in urls:
            assert await ask(url, "DELETE", "/subjects/own-0") in ((200, [1, 2, 3, 4]), (404, _anything))
            assert "own-0" not in (await ask(url, "GET", "/subjects"))[1]
            # The writer's errors arrive as they are.
            status, answer = await ask(url, "PUT", "/config", {"compatibility": "NONSENSE"})
            assert (status, answer["error_code"]) == (422, 42203)


class _Anything:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


_anything = _Anything()


async def test_another_one_takes_over_when_the_writer_stops(broker: Broker) -> None:
    async with registries(broker, 2) as running:
        known = [await register(url, f"s{number}", fixed(f"A{number}")) for number, (url, _) in enumerate(running)]
        running[0][1].cancel()
        known.append(await register(running[1][0], "t", fixed("B")))
        assert len(set(known)) == 3
        assert await ask(running[1][0], "GET", f"/schemas/ids/{known[0]}/schema") == (200, json.loads(fixed("A0")))


async def test_a_topic_that_was_deleted_with_its_group_begins_anew(broker: Broker) -> None:
    async with registries(broker, 1) as ((url, _),):

        async def is_empty() -> bool:
            return bool((await ask(url, "GET", "/subjects"))[1] == [])

        for _ in range(3):
            assert await register(url, "s", fixed("A")) == 1
            await trio.to_thread.run_sync(broker.reset)
            await until(is_empty)


class Elsewhere(BaseHTTPRequestHandler):
    """A registry of another kind that writes."""

    got: list[tuple[str, str | None, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).got.append((self.path, self.headers["Authorization"], body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"id":77}')

    def log_message(self, *_: object) -> None:
        """Tests have no use for it."""


async def test_a_registry_of_confluents_writes_while_it_leads(broker: Broker) -> None:
    Elsewhere.got = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        identity = Identity("http", "127.0.0.1", server.server_port)
        async with trio.open_nursery() as nursery:
            scope = await nursery.start(be_confluents, broker, identity)
            async with registries(broker, 1) as ((url, _),):
                path = "/subjects/a%2Fb/versions?normalize=true"

                async def is_written_here() -> bool:
                    return bool((await ask(url, "POST", path, {"schema": '"int"'}))[1].get("id") == 1)

                assert await ask(url, "POST", path, {"schema": '"int"'}) == (200, {"id": 77})
                assert Elsewhere.got == [(path, None, {"schema": '"int"'})]
                # It has gone: the session of the test's member ends.
                scope.cancel()
                await until(is_written_here)
        server.shutdown()


async def be_confluents(broker: Broker, identity: Identity, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    """A member of the group that assigns the writing to itself, with Confluent's JSON."""
    connect = partial(TrioConnection, "127.0.0.1", broker.port, client_id="confluent")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            connection = await nursery.start(connect().run)
            member_id = ""
            protocols = [JoinGroupRequestProtocol(name="v0", metadata=identity.encode())]
            while True:
                joined = await connection.call(
                    JoinGroupRequest(
                        group_id=GROUP,
                        session_timeout_ms=2_000,
                        rebalance_timeout_ms=2_000,
                        member_id=member_id,
                        protocol_type="sr",
                        protocols=protocols,
                    )
                )
                member_id = joined.member_id
                if joined.error_code:
                    continue
                fields = {"version": 1, "error": 0, "master": member_id, "master_identity": identity.fields()}
                made = json.dumps(fields).encode()
                assignments = [
                    SyncGroupRequestAssignment(member_id=it.member_id, assignment=made) for it in joined.members
                ]
                await connection.call(
                    SyncGroupRequest(
                        group_id=GROUP,
                        generation_id=joined.generation_id,
                        member_id=member_id,
                        protocol_type="sr",
                        protocol_name="v0",
                        assignments=assignments,
                    )
                )
                task_status.started(scope)
                task_status = trio.TASK_STATUS_IGNORED
                beat = HeartbeatRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=member_id)
                while not (await connection.call(beat)).error_code:  # noqa: ASYNC110 - heartbeats
                    await trio.sleep(0.1)


async def test_nobody_writes_where_two_have_the_same_address(broker: Broker) -> None:
    connect = partial(TrioConnection, client_id="same")
    one, two = (Election(connect, [("127.0.0.1", broker.port)], ONE, session_seconds=1) for _ in range(2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        assert await one.writer() is None
        nursery.start_soon(two.run)
        for election in (two, one):
            with pytest.raises(RegistryError, match="have the same address") as raised:
                await until(partial(is_other, election))
            assert raised.value.code == 50004
        nursery.cancel_scope.cancel()


async def test_the_right_to_write_ends_with_the_session(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = partial(TrioConnection, client_id="frozen")
    election = Election(connect, [("127.0.0.1", broker.port)], ONE, session_seconds=1)

    async def is_stable() -> bool:
        return bool((await group(broker)).group_state == "Stable")

    async def is_over() -> bool:
        return not election.is_writer

    async with trio.open_nursery() as nursery:
        nursery.start_soon(election.run)
        assert await election.writer() is None
        await until(is_stable)
        # No heartbeat is answered any more, and nothing says so.
        call = TrioConnection.call

        async def silent(self: TrioConnection, request: Any, **options: Any) -> Any:
            if isinstance(request, HeartbeatRequest):
                await trio.sleep_forever()
            return await call(self, request, **options)

        monkeypatch.setattr(TrioConnection, "call", silent)
        await until(is_over)
        nursery.cancel_scope.cancel()


PROGRAM = textwrap.dedent("""
    import sys, json
    from functools import partial
    import trio
    from ottla.client.trio_connection import TrioConnection
    from ottla.registry import standalone
    from ottla.registry.writer import election

    election.Election.__init__.__defaults__ = (election.GROUP, 1.0)

    async def main(port):
        async with trio.open_nursery() as nursery:
            serve = partial(standalone.run, [("127.0.0.1", port)], ("127.0.0.1", 0))
            running = await nursery.start(serve)
            print(running.url, flush=True)

    trio.run(main, int(sys.argv[1]))
""")


def started(broker: Broker) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(broker.port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def killed(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def test_kills_of_whoever_writes_lose_nothing_and_give_no_id_twice(broker: Broker) -> None:
    running = [await trio.to_thread.run_sync(started, broker) for _ in range(2)]
    answered: dict[str, int] = {}
    try:
        for turn in range(3):
            await under_load(running, answered, turn)
            running.append(await trio.to_thread.run_sync(started, broker))
        assert len(answered) > 40
        assert len(set(answered.values())) == len(answered)
        log = SchemaLog(partial(TrioConnection, client_id="test"), [("127.0.0.1", broker.port)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.run)
            await log.wait_ready()
            for name, schema_id in answered.items():
                entry = log.state.by_id(schema_id, ".")
                assert entry is not None
                assert entry.content.text == fixed(name)
            nursery.cancel_scope.cancel()
    finally:
        for process, _ in running:
            killed(process)


async def under_load(running: list[tuple[subprocess.Popen[str], str]], answered: dict[str, int], turn: int) -> None:
    """Register by way of both; kill the first in the middle of it, and go on until the other one has taken over."""
    victim, survivor = running.pop(0), running[0]
    is_over = trio.Event()

    async def work(url: str, lane: str) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            name = f"T{turn}_{lane}_{number}"
            try:
                status, answer = await ask(url, "POST", f"/subjects/{name}/versions", {"schema": fixed(name)})
            except (URLError, OSError, ValueError, HTTPException):
                return
            if status == 200:
                answered[name] = answer["id"]

    async with trio.open_nursery() as nursery:
        for lane in range(2):
            nursery.start_soon(work, victim[1], f"v{lane}")
            nursery.start_soon(work, survivor[1], f"s{lane}")
        await until(partial(has, answered, "", len(answered) + 12))
        await trio.to_thread.run_sync(killed, victim[0])
        await until(partial(has, answered, "_s", sum("_s" in name for name in answered) + 4))
        is_over.set()


async def is_other(election: Election) -> bool:
    return await election.writer() is not None


async def has(answered: dict[str, int], part: str, count: int) -> bool:
    return sum(part in name for name in answered) >= count

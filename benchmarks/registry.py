"""The schema registry: look-ups and registrations a second, and what many schemas take at a start.

`python -m benchmarks.registry [--schemas N] [--seconds S]` starts `ottla serve --registry` and asks it over HTTP from
another process; then it asks the HTTP server alone, with an application that has a look-up's answer ready. At last it
writes N schemas to a broker and starts `ottla registry` before that.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ottla.client.admin.topics import create_topic
from ottla.client.batch_sender import BatchSender
from ottla.client.client import Client
from ottla.kproto.records import Record
from ottla.registry.store.records import SCHEMA, Content, Key, SchemaValue

OTTLA = [sys.executable, "-m", "ottla.cli"]
#: As with an installed wheel, modules are compiled once. Where that is switched off, each start would do it again.
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def schema(number: int) -> str:
    fields = [{"name": f"field_{index}", "type": ["null", "string"], "default": None} for index in range(8)]
    return json.dumps({"type": "record", "name": f"Record{number}", "namespace": "com.example", "fields": fields})


#: As many bytes, and the same headers, as a look-up by id is answered with.
ANSWER = json.dumps({"schemaType": "AVRO", "schema": schema(0), "guid": 36 * "0"}, separators=(",", ":")).encode()
HEADERS = [
    (b"content-type", JSON["Content-Type"].encode()),
    (b"content-length", str(len(ANSWER)).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


def started(*words: str) -> AbstractContextManager[tuple[subprocess.Popen[str], dict[str, Any], float]]:
    """A command of Ottla's, its ready line, and how long that took."""
    return started_by([*OTTLA, *words])


@contextmanager
def started_by(words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any], float]]:
    began = time.perf_counter()
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
    assert program.stdout is not None
    try:
        ready = json.loads(program.stdout.readline())
        yield program, ready, time.perf_counter() - began
    finally:
        program.terminate()
        program.wait()
        program.stdout.close()


def cpu_seconds(program: subprocess.Popen[str]) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{program.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tell(what: str, program: subprocess.Popen[str], seconds: float, ask: Callable[[int], object]) -> None:
    """Ask one after the other; on a busy machine, the server's processor time says more than the rate."""
    began, used, count = time.perf_counter(), cpu_seconds(program), 0
    while time.perf_counter() - began < seconds:
        ask(count)
        count += 1
    rate, cpu = count / (time.perf_counter() - began), (cpu_seconds(program) - used) / count
    print(f"{what:32} {rate:8,.0f}/s, {cpu * 1000:.2f} ms of the server's CPU each: {1 / cpu:,.0f}/s on one core")


def resident_mib(program: subprocess.Popen[str]) -> float:
    with open(f"/proc/{program.pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def requests(seconds: float) -> None:
    with started("serve", "--port", "0", "--memory", "256", "--registry", "127.0.0.1:0") as (program, ready, _):
        connection = http.client.HTTPConnection(urlsplit(ready["registry"]).netloc)

        def ask(method: str, path: str, body: object = None) -> Any:
            connection.request(method, path, None if body is None else json.dumps(body), JSON)
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == 200, answer
            return answer

        first = ask("POST", "/subjects/s/versions", {"schema": schema(0)})["id"]
        tell("look-ups by id", program, seconds, lambda _: ask("GET", f"/schemas/ids/{first}"))
        tell("look-ups of the latest version", program, seconds, lambda _: ask("GET", "/subjects/s/versions/latest"))
        tell("look-ups by schema", program, seconds, lambda _: ask("POST", "/subjects/s", {"schema": schema(0)}))
        register = lambda number: ask("POST", f"/subjects/n{number}/versions", {"schema": schema(number + 1)})  # noqa: E731
        tell("registrations", program, seconds, register)


def server_alone(seconds: float) -> None:
    """What a look-up by id costs if nothing is looked up."""
    with started_by([sys.executable, "-m", "benchmarks.registry", "--answer-alone"]) as (program, ready, _):
        connection = http.client.HTTPConnection(urlsplit(ready["url"]).netloc)

        def ask(_: int) -> None:
            connection.request("GET", "/schemas/ids/1", None, JSON)
            assert connection.getresponse().read() == ANSWER

        tell("the HTTP server alone", program, seconds, ask)


def answer_alone() -> None:
    """Serve an answer that is ready, by the server of the HTTP port, until the process ends."""
    import socket

    import trio

    from ottla.runtime.garbage import collect_seldom
    from ottla.server.http.server import prepare

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await trio.sleep_forever()
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": ANSWER})

    listening = socket.create_server(("127.0.0.1", 0))
    served: Any = application
    serve = prepare(served, listening)
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    collect_seldom()
    trio.run(serve)


def many(count: int) -> None:
    with started("serve", "--port", "0", "--memory", "1024") as (_, ready, _):
        with Client([("127.0.0.1", ready["port"])]) as client:
            create_topic(client, "_schemas", 1, {"cleanup.policy": "compact"})
            sender = BatchSender(client)
            for number in range(count):
                name = f"subject-{number}-value"
                value = SchemaValue(name, 1, number + 1, Content("AVRO", schema(number)))
                sender.add("_schemas", Record(key=Key(SCHEMA, name, 1).encode(), value=value.encode()), 0)
            sender.flush()
        upstream = f"127.0.0.1:{ready['port']}"
        with started("registry", "--upstream", upstream, "--listen", "127.0.0.1:0") as (program, _, seconds):
            cpu, memory = cpu_seconds(program), resident_mib(program)
            print(f"start with {count:,} schemas: {seconds:.2f} s, {cpu:.2f} s of CPU, {memory:.0f} MiB")
        with started("registry", "--upstream", upstream, "--topic", "_empty", "--listen", "127.0.0.1:0") as (
            program,
            _,
            seconds,
        ):
            cpu, memory = cpu_seconds(program), resident_mib(program)
            print(f"start with none: {seconds:.2f} s, {cpu:.2f} s of CPU, {memory:.0f} MiB")


def starts(repeats: int) -> None:
    """What a registry adds to a broker's start: on a busy machine, the processor time says more."""
    taken: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(repeats + 1):
        for has_registry in taken:
            more = ["--registry", "127.0.0.1:0"] if has_registry else []
            with started("serve", "--port", "0", "--memory", "64", *more) as (program, _, seconds):
                taken[has_registry].append((seconds, cpu_seconds(program)))
    # The first start of each kind may have compiled modules.
    for has_registry, what in ((False, "without"), (True, "with a registry")):
        seconds, cpu = (statistics.median(values) * 1000 for values in zip(*taken[has_registry][1:], strict=True))
        print(f"a broker's start {what}, median of {repeats}: {seconds:.0f} ms, {cpu:.0f} ms of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schemas", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--answer-alone", action="store_true", help="only serve an answer that is ready, and nothing else"
    )
    arguments = parser.parse_args()
    if arguments.answer_alone:
        answer_alone()
    requests(arguments.seconds)
    server_alone(arguments.seconds)
    many(arguments.schemas)
    starts(arguments.repeats)


if __name__ == "__main__":
    main()

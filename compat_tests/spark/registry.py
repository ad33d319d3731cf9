"""A schema registry for tests: the look-ups of Confluent's HTTP interface, over schemas that the test gives it."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class SchemaRegistry:
    """Subjects with their schemas, oldest first; ids count from 1 over all subjects."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.authorization: str | None = None
        """What requests must have in their header of that name; None lets everybody in."""
        self.by_id: dict[int, Any] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """References are of a name, a subject and a version, which count from 1."""
        schema_id = len(self.by_id) + 1
        self.by_id[schema_id] = schema
        answer = {"id": schema_id, "schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if kind != "AVRO":
            answer["schemaType"] = kind
        if references:
            names = ("name", "subject", "version")
            answer["references"] = [dict(zip(names, reference, strict=True)) for reference in references]
        self._answers[schema_id] = answer
        self._subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def encode(self, schema_id: int, row: dict[str, Any]) -> bytes:
        """A value of Avro as Confluent's serializers write it."""
        stream = io.BytesIO()
        stream.write(b"\x00" + schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(stream, self.by_id[schema_id], row)
        return stream.getvalue()

    def answer(self, path: str) -> dict[str, Any] | None:
        parts = path.strip("/").split("/")
        if parts[:2] == ["schemas", "ids"]:
            return self._answers.get(int(parts[2]))
        versions = self._subjects.get(parts[1], []) if parts[0] == "subjects" else []
        number = len(versions) if parts[-1] == "latest" else int(parts[-1])
        return self._answers[versions[number - 1]] if 0 < number <= len(versions) else None


@contextmanager
def running() -> Iterator[SchemaRegistry]:
    """A registry on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if registry.authorization not in (None, self.headers["Authorization"]):
                self._say(401, {"error_code": 40101, "message": "who are you?"})
            elif (answer := registry.answer(self.path)) is None:
                self._say(404, {"error_code": 40403, "message": "not found"})
            else:
                self._say(200, answer)

        def _say(self, code: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = SchemaRegistry(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()

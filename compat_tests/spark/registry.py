"""A schema registry for tests: the two look-ups of Confluent's HTTP interface, over schemas that the test gives it."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class SchemaRegistry:
    """Subjects with their schemas, oldest first; ids count from 1 over all subjects."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.by_id: dict[int, Any] = {}
        self.latest: dict[str, int] = {}

    def register(self, subject: str, schema: Any) -> int:
        schema_id = len(self.by_id) + 1
        self.by_id[schema_id] = schema
        self.latest[subject] = schema_id
        return schema_id

    def encode(self, schema_id: int, row: dict[str, Any]) -> bytes:
        """A value as Confluent's serializers write it."""
        stream = io.BytesIO()
        stream.write(b"\x00" + schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(stream, self.by_id[schema_id], row)
        return stream.getvalue()

    def answer(self, path: str) -> dict[str, Any] | None:
        parts = path.strip("/").split("/")
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) in self.by_id:
            return {"schema": json.dumps(self.by_id[int(parts[2])])}
        if parts[0] == "subjects" and parts[2:] == ["versions", "latest"] and parts[1] in self.latest:
            schema_id = self.latest[parts[1]]
            return {"id": schema_id, "schema": json.dumps(self.by_id[schema_id])}
        return None


@contextmanager
def running() -> Iterator[SchemaRegistry]:
    """A registry on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = registry.answer(self.path)
            body = json.dumps(answer or {"error_code": 40403, "message": "not found"}).encode()
            self.send_response(200 if answer else 404)
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

"""A server with the interface of S3, for tests: moto in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

BUCKET = "bucket"


def config_of(endpoint: str) -> dict[str, str]:
    """What obstore must know of the server."""
    return {"endpoint": endpoint, "access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}


@contextmanager
def s3_server() -> Iterator[str]:
    """The server's address; it has one empty bucket."""
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint = server.stdout.readline().strip()
            assert endpoint, "moto has not started"
            with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=30):
                pass
            yield endpoint
        finally:
            server.kill()


# S3 decides one conditional write of an object at a time. Moto looks and writes in two steps, in a thread for each
# request.
_PROGRAM = """
from threading import Lock

from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

lock, answer = Lock(), DomainDispatcherApplication.__call__


def answer_alone(self, environ, start_response):
    with lock:
        return answer(self, environ, start_response)


DomainDispatcherApplication.__call__ = answer_alone
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
print(f"http://{host}:{port}", flush=True)
server._thread.join()
"""

"""What Trio's import leaves for later comes when it is needed, from wherever that is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

_BEGIN = """
import json, sys
from ottla.cli.serve.trio_import import import_trio
"""


def run(script: str) -> Any:
    """What a new interpreter prints at the end of a script."""
    result = subprocess.run([sys.executable, "-c", _BEGIN + script], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_trio_is_imported_without_openssl_and_without_another_program() -> None:
    loaded, children = run(
        """
import resource
import_trio()
names = ["trio", "trio._dtls", "trio._ssl", "_ssl", "_hashlib"]
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([[name for name in names if name in sys.modules], children.ru_minflt]))
"""
    )
    assert loaded == ["trio", "trio._dtls", "trio._ssl"]
    assert children == 0


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("import ssl; import ssl as again", "ssl.SSLContext.__name__ + again.OPENSSL_VERSION[:0]"),
        ("from ssl import SSLContext", "SSLContext.__name__"),
        ("from ssl import *", "SSLContext.__name__"),
        ("import trio._ssl", "trio._ssl._stdlib_ssl.SSLContext.__name__"),
        ("import ssl", "ssl.__spec__.loader.__class__.__name__.replace('SourceFileLoader', 'SSLContext')"),
        ("import hmac", "hmac.new(b'k', b'm', 'sha256').hexdigest()[:0] + 'SSLContext'"),
    ],
)
def test_what_waits_is_there_at_the_first_look(statement: str, value: str) -> None:
    assert run(f"import_trio()\n{statement}\nprint(json.dumps({value}))") == "SSLContext"


def test_what_a_module_lacks_is_an_attribute_error_as_ever() -> None:
    text, is_left = run(
        """
import_trio()
import ssl
try:
    ssl.no_such_thing
except AttributeError as error:
    print(json.dumps([str(error), "__getattr__" in vars(ssl)]))
"""
    )
    assert text == "module 'ssl' has no attribute 'no_such_thing'"
    assert not is_left


def test_threads_that_look_at_once_find_the_whole_module() -> None:
    found = run(
        """
import_trio()
import ssl, threading
start, found = threading.Barrier(8), []
def look():
    start.wait()
    found.append(ssl.create_default_context.__name__)
threads = [threading.Thread(target=look) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(found))
"""
    )
    assert found == ["create_default_context"] * 8


def test_threads_have_their_names_for_the_system() -> None:
    """The library that names them is not searched for."""
    name = run(
        """
import_trio()
import trio
from pathlib import Path
def of_trios():
    import threading
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()
async def main():
    return await trio.to_thread.run_sync(of_trios)
print(json.dumps(trio.run(main)))
"""
    )
    assert name == "of_trios from __main__.main"[:15]


def test_nothing_stays_behind_and_a_second_time_does_nothing() -> None:
    same = run(
        """
import ctypes.util
before = list(map(str, sys.meta_path)), ctypes.util.find_library
import_trio()
import_trio()
print(json.dumps((list(map(str, sys.meta_path)), ctypes.util.find_library) == before))
"""
    )
    assert same

"""Every `sh` command of docs/operations.md works. Its `console` commands need root, or Docker, and are not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"

# These look at a folder that no broker has.
ON_A_STOPPED_BROKER = ("fsck", "dump")


def commands() -> Iterator[list[str]]:
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            name, *words = shlex.split(line, comments=True)
            assert name == "ottla", line
            yield words


def test_every_command_of_the_page_works(broker: Any, broker_class: type[Any], tmp_path: Path) -> None:
    broker.run("topic", "create", "orders")
    broker.run("produce", "orders", stdin=b"a\nb\n")
    broker.run("consume", "orders")
    broker.run("group", "seek", "readers", "orders", "--to", "earliest", check=False)
    stopped = broker_class(tmp_path / "stopped")
    stopped.run("produce", "orders", stdin=b"a\nb\n")
    assert stopped.stop() == 0
    done: list[str] = []
    for words in commands():
        folder = "stopped" if words[0] in ON_A_STOPPED_BROKER else "data"
        # What is named in the page, and where it is here.
        for there, here in (
            ("/var/lib/restored", str(tmp_path / "restored")),
            ("/var/lib/ottla", str(tmp_path / folder)),
            ("/backup", str(tmp_path / "backup")),
            ("/tmp/ottla", str(tmp_path / "any")),
            (":9092", ":0"),
        ):
            words = [word.replace(there, here) for word in words]
        if words[0] == "serve":
            _serve(words, broker_class, tmp_path / f"served-{len(done)}")
        else:
            if words[0] == "doctor":
                words += ["--port", "0"]
            result = broker.run(*words, check=False)
            assert result.returncode == 0, (words, result.stdout.decode(), result.stderr.decode())
            if words[0] == "fsck":
                assert b"warning" not in result.stdout
                assert result.stdout.endswith(b": sound\n")
        done.append(words[0])
    assert {"serve", "doctor", "config", "quota", "top", "backup", "restore", "fsck", "dump", "log-dirs"} <= set(done)


def _serve(words: list[str], broker_class: type[Any], data_dir: Path) -> None:
    """It gets ready, and stops in order; on a folder of its own, as the page's may be in use."""
    flags = list(words[1:])
    if "--data-dir" in flags:
        at = flags.index("--data-dir")
        del flags[at : at + 2]
    started = broker_class(data_dir, *flags)
    assert started.ready["event"] == "ready"
    assert started.stop() == 0

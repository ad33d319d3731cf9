"""`ottla dump`: show the segments, blocks, runs, batches and records of data files.

Exit codes: 0 done, 1 a file cannot be read, 4 damage was met (and shown).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ottla.cli import CommandError, options
from ottla.cli.folders.internal_records import explain
from ottla.cli.folders.watched_disk import WatchedDisk, size_of
from ottla.storage.errors import StorageError
from ottla.storage.inspect.dump import LEVELS, dump_file

EXIT_DAMAGED = 4
_INDENT = {"segment": "", "block": "  ", "run": "    ", "batch": "      ", "record": "        ", "damage": ""}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("path", nargs="+", help="a .data file, or a folder with some in it")
    parser.add_argument("--show", choices=LEVELS, default="runs", help="how deep to go (default: runs)")
    parser.add_argument("--partition", type=options.number, help="only this partition's runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(arguments: argparse.Namespace) -> int:
    """Print everything down to the requested depth."""
    is_damaged = False
    depth = LEVELS.index(arguments.show)
    progress = options.Progress("read", enabled=not sys.stdout.isatty())
    disk = WatchedDisk(progress, size_of(arguments.path))
    try:
        for path in _data_files(arguments.path):
            for item in dump_file(disk, path, depth, arguments.partition, partial(explain, _topic_of(path))):
                is_damaged = is_damaged or item["type"] == "damage" or item.get("crc_ok") is False
                print(json.dumps(item) if arguments.json else _line(item))
    except OSError as error:
        if error.filename is None:
            raise  # such as a pipe whose reader has had enough
        raise CommandError(f"cannot read {error.filename}: {error.strerror}") from error
    except StorageError as error:
        raise CommandError(str(error)) from error
    finally:
        progress.finish()
    return EXIT_DAMAGED if is_damaged else 0


def _topic_of(path: str) -> str:
    """The topic in whose folder (`<topic>.<id>/<number>/`) a file is; for a store that topics share it is something
    else.
    """
    return Path(path).absolute().parent.parent.name.rpartition(".")[0]


def _data_files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path, onerror=_refuse):
            folders.sort()
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".data"))


def _refuse(error: OSError) -> None:
    raise error


def _line(item: dict[str, Any]) -> str:
    fields = " ".join(f"{name}={value}" for name, value in item.items() if name != "type" and value != [])
    return f"{_INDENT[item['type']]}{item['type']} {fields}"

"""`ottla doctor`: whether a broker with these settings can run here and be reached, and what to do if not.

It takes the flags of `ottla serve`. Run it before the first start, or while a broker runs; it changes nothing.

Exit codes: 0 nothing failed (there may be warnings), 1 something did.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ottla.cli import CommandError, options
from ottla.cli.access.secure import FOLDER
from ottla.cli.connection import security
from ottla.cli.doctor import etcd, http, machine, network, start
from ottla.cli.doctor.finding import FAIL, Finding, fail, ok, warn
from ottla.cli.serve import config as serve_config
from ottla.cli.serve import serve
from ottla.settings.config import BrokerConfig, ConfigError

_SIGNS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}
_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    serve.configure(parser)
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="how to connect to a running broker: a client's properties (default: $OTTLA_COMMAND_CONFIG; "
        "with --secure those in the data folder)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")


def run(arguments: argparse.Namespace) -> int:
    findings = []
    for finding in _examine(arguments):
        findings.append(finding)
        if not arguments.json:
            advice = f"\n       -> {finding.advice}" if finding.advice else ""
            sign = options.colored(_SIGNS[finding.level], _COLORS[finding.level], sys.stdout)
            print(f"{sign}  {finding.subject}: {finding.message}{advice}", flush=True)
    if arguments.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    return 1 if any(finding.level == FAIL for finding in findings) else 0


def _examine(arguments: argparse.Namespace) -> Iterator[Finding]:
    try:
        configs = start.configurations(arguments)
    except (ConfigError, CommandError) as error:
        yield fail("settings", str(error), "correct the file, the environment variable or the flag that it comes from")
        return
    config = configs[0]
    yield _settings(config)
    if start.lacks_keys(arguments):
        yield ok("keys", "the first start makes them, and an administrator")
    data_dir = (config.log_dirs or config.log_dir)[0]
    if arguments.memory is None:
        yield from machine.data_folder(data_dir)
        for each in configs:
            yield from start.examine_folder(each)
    yield machine.files(config.max_connections)
    yield machine.memory(config.ottla_memory_budget_bytes, len(configs))
    yield machine.clock(data_dir, time.time())
    yield from etcd.examine(config, data_dir)
    try:
        how = security(arguments.command_config or _own_properties(arguments))
    except CommandError as error:
        yield fail("--command-config", str(error), "name a file of client properties that can be read")
        return
    for each in configs:
        yield from network.examine(each, how)
        yield from http.examine(each)


def _own_properties(arguments: argparse.Namespace) -> Path | None:
    """The administrator's of `--secure`."""
    if not arguments.secure or start.lacks_keys(arguments):
        return None
    return serve_config.data_dir(arguments) / FOLDER / "client.properties"


def _settings(config: BrokerConfig) -> Finding:
    if config.unknown_variables:
        return warn(
            "settings",
            f"unknown in the environment: {' '.join(config.unknown_variables)}",
            "correct the names, or remove the variables",
        )
    without_effect = config.accepted_without_effect()
    if without_effect:
        return ok("settings", f"valid; these have no effect here: {', '.join(without_effect)}")
    return ok("settings", "valid")

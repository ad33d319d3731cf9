"""`ottla cert`: certificates of the authority of `ottla serve --secure`, for more brokers and for clients."""

from __future__ import annotations

import argparse
from pathlib import Path

from ottla.cli import CommandError, options
from ottla.cli.access.secure import FOLDER, SecureFolder, write_private
from ottla.security.certificates import DAYS, issue
from ottla.settings.config import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a user's name, or a distinguished name as CN=alice,O=Ottla")
    parser.add_argument(
        "--host", action="append", default=[], metavar="NAME", help="for a broker: a name or address that clients use"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("ottla-data"),
        metavar="DIR",
        help="the broker's data folder (default: ottla-data)",
    )
    parser.add_argument(
        "--days", type=options.count, default=DAYS, metavar="N", help=f"how long it is valid (default {DAYS})"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default NAME.pem; key and certificate")


def run(arguments: argparse.Namespace) -> int:
    output = arguments.output or Path(f"{arguments.name.rpartition('=')[2].replace('/', '_')}.pem")
    if output.exists():
        raise CommandError(f"{output} exists already: choose another --output")
    authority = SecureFolder(arguments.data_dir / FOLDER).read_authority()
    try:
        pair = issue(authority, arguments.name, arguments.host, arguments.days)
    except ConfigError as error:
        raise CommandError(str(error)) from None
    except ValueError as error:
        raise CommandError(f"cannot make a certificate for {arguments.name!r}: {error}") from None
    try:
        write_private(output, pair.key + pair.certificate)
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from None
    print(output)
    return 0

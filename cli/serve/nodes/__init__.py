"""`ottla serve --nodes N`: a cluster on one machine, a process for each node and one that looks after them.

The process that was started becomes the supervisor. It has loaded everything a node needs, has one thread and no event
loop, and forks: a node starts with its modules loaded, and shares their memory with the others. `plan` decides which
nodes there are and refuses what cannot work, `supervisor` starts, restarts and stops them, `link` lets both talk, and
`page` gathers the HTTP pages of all nodes in a process of its own.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ottla.cli.serve.nodes.plan import Plan

_AT_START: Final = (
    "encodings.ascii",
    "encodings.idna",
    "sqlite3",
    "trio",
    "ottla.cli.serve.node_process",
    "ottla.server.main",
    "ottla.metadata.open_store",
    "ottla.metastore.sqlite",
)


def serve_nodes(arguments: argparse.Namespace) -> int:
    """Run the cluster until it is asked to stop; returns the exit code. Raises CommandError if it cannot start."""
    from ottla.cli.folders.nodes import data_dir_of
    from ottla.cli.serve.nodes.plan import check, make_plan
    from ottla.cli.serve.nodes.supervisor import Supervisor
    from ottla.cli.serve.refused_start import leaving_nothing
    from ottla.runtime import logs
    from ottla.settings.config import ConfigError

    try:
        plan = make_plan(arguments)
        first = plan.configs[0]
        logs.configure(first.ottla_log_level, first.ottla_log_format.lower())
        check(plan)
    except ConfigError as error:
        raise CommandError(str(error)) from None
    _load_what_nodes_need()
    with leaving_nothing(data_dir_of(first)), _sockets(plan) as plan:
        gc.freeze()  # a collection in a node would copy the pages that it shares with the others
        return Supervisor(plan).run()


@contextmanager
def _sockets(plan: Plan) -> Iterator[Plan]:
    """The plan with a place where the page asks the nodes, if there is a page: a folder that only this user may open.
    It is not the data folder, because that path may be too long for a socket.
    """
    if plan.page is None:
        yield plan
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True) as folder:
        yield plan.with_sockets(Path(folder))


def _load_what_nodes_need() -> None:
    """Import the modules that a node needs, once for all nodes."""
    for module in _AT_START:
        import_module(module)

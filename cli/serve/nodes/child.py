"""A process that the supervisor forks, from its beginning to its end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.cli.serve.nodes.link import Lines, Message, UnderSupervisor, receive, send

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_OF_SUPERVISOR: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
# A node handles SIGTERM itself while it serves; at other times only the supervisor's messages count.
_NOT_HEARD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Child:
    """One process. `leave_behind` is called in it to close what belongs to the supervisor alone."""

    def __init__(self, work: Callable[[UnderSupervisor], int], leave_behind: Callable[[], None]) -> None:
        self.link, theirs = socket.socketpair()
        self.link.setblocking(False)
        self._lines = Lines()
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal for the child must find its own handlers, not those inherited from the supervisor.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_SUPERVISOR)
        self.pid = os.fork()
        if self.pid == 0:
            leave_behind()
            self.link.close()
            _become(work, theirs, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def send(self, message: Message) -> None:
        send(self.link, message)

    def receive(self) -> list[Message] | None:
        """The messages since the last call; None once it can send no more."""
        return receive(self.link, self._lines)

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self) -> int | None:
        """Its exit code, as from `os.waitstatus_to_exitcode`; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Forget a process that has ended."""
        self.link.close()


def _become(work: Callable[[UnderSupervisor], int], link: socket.socket, mask: set[int | signal.Signals]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in _OF_SUPERVISOR:
            signal.signal(number, signal.SIG_IGN if number in _NOT_HEARD else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.environ.pop("NOTIFY_SOCKET", None)  # only the supervisor talks to the service manager
        link.setblocking(False)
        code = work(UnderSupervisor(link))
    except BaseException:
        logger.critical("process %d has failed", os.getpid(), exc_info=True)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

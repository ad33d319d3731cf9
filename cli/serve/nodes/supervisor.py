"""The process that starts the nodes, starts again whichever dies, and stops them all in order.

It has one thread and no event loop, so that it may fork at any time, and sleeps until something happens.
"""

from __future__ import annotations

import json
import logging
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.cli import CommandError
from ottla.cli.serve.nodes.child import Child
from ottla.cli.serve.nodes.link import CUT_SHORT, STOP, Message, UnderSupervisor
from ottla.cli.serve.nodes.restarts import Restarts
from ottla.cli.serve.notify import READY, STOPPING, notify

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cli.serve.nodes.plan import NodePlan, Plan

logger = logging.getLogger(__name__)

_KILL_SECONDS: Final = 10.0
"""How long a process may take that was told to end at once."""


class Member:
    """A process that the supervisor keeps running: a node, or the page of all nodes."""

    def __init__(self, name: str, work: Callable[[UnderSupervisor], int]) -> None:
        self.name = name
        self.work = work
        self.child: Child | None = None
        self.started_s = 0.0
        self.restarts = Restarts()
        #: When to start it again, by time.monotonic.
        self.due_s: float | None = None
        #: What it reported when it began to serve; None while it does not serve.
        self.ready: Message | None = None
        self.error: str | None = None


class NodeMember(Member):
    """A node, which keeps the ports that it got at its first start."""

    def __init__(self, plan: NodePlan) -> None:
        super().__init__(f"node {plan.config.node_id}", plan.run)
        self.plan = plan

    def pin(self) -> None:
        assert self.ready is not None
        self.plan = self.plan.pinned(self.ready["listeners"], self.ready["http"], self.ready)
        self.work = self.plan.run

    def state(self) -> Message:
        """Its state for the page of all nodes."""
        return {
            "node_id": self.plan.config.node_id,
            "http": self.plan.http_url,
            "socket": self.plan.page_socket,
            "listeners": self.plan.config.listeners,
            "pid": self.child.pid if self.child is not None else None,
            "serves": self.ready is not None,
            "restarts": self.restarts.total,
        }


class Supervisor:
    """The whole life of `ottla serve --nodes N`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._nodes = [NodeMember(node) for node in plan.nodes]
        self._page: Member | None = None
        # Not epoll, whose set a forked process would share.
        self._selector = selectors.PollSelector()
        self._wakeups, self._wakeups_in = socket.socketpair()
        self._is_announced = False
        self._is_stopping = False
        self._kill_s: float | None = None
        self._refusal: str | None = None
        self._exit_code = 0

    def run(self) -> int:
        """Run until everything has ended. Raises CommandError if a node's first start fails."""
        with self._hearing_signals():
            for node in self._nodes:
                self._start(node)
            while self._living() or any(it.due_s is not None for it in self._members()):
                self._turn()
        if self._refusal is not None:
            raise CommandError(self._refusal)
        logger.info("stopped in order" if self._exit_code == 0 else "stopped, but not everything in order")
        return self._exit_code

    def _members(self) -> list[Member]:
        return [*self._nodes] if self._page is None else [*self._nodes, self._page]

    def _living(self) -> list[Member]:
        return [member for member in self._members() if member.child is not None]

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        self._wakeups.setblocking(False)
        self._wakeups_in.setblocking(False)
        self._selector.register(self._wakeups, selectors.EVENT_READ, self._hear)
        signal.set_wakeup_fd(self._wakeups_in.fileno(), warn_on_full_buffer=False)
        heard = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup has seen to it
            heard.append(signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: None) for number in heard}
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._leave_behind()

    def _leave_behind(self) -> None:
        """Close what belongs to the supervisor alone: at its end, and in every process that it forks."""
        self._selector.close()
        self._wakeups.close()
        self._wakeups_in.close()
        for member in self._living():
            assert member.child is not None
            member.child.close()

    # What happens.

    def _turn(self) -> None:
        """Wait for something to happen, and handle it."""
        for key, _ in self._selector.select(self._seconds_until_due()):
            key.data()
        for member in self._living():
            assert member.child is not None
            code = member.child.ended()
            if code is not None:
                self._hear_member(member)  # its last words
                self._ended(member, code)
        now = time.monotonic()
        for member in self._members():
            if member.due_s is not None and member.due_s <= now:
                self._start(member)
        if self._kill_s is not None and self._kill_s <= now:
            self._kill_s = None
            for member in self._living():
                logger.error("%s does not end: it is killed", member.name)
                member.child.signal(signal.SIGKILL)  # type: ignore[union-attr]

    def _seconds_until_due(self) -> float | None:
        due = [it for it in (*(member.due_s for member in self._members()), self._kill_s) if it is not None]
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def _hear(self) -> None:
        """Handle signals: the first that asks for the end stops everything in order, the next ones cut it short."""
        with suppress(BlockingIOError):
            for number in self._wakeups.recv(4096):
                if number == signal.SIGCHLD:
                    continue
                name = signal.Signals(number).name
                if self._is_stopping:
                    logger.warning("%s: stopping at once", name, extra={"signal": name})
                    self._tell_all(CUT_SHORT)
                    self._kill_s = time.monotonic() + _KILL_SECONDS
                else:
                    logger.info("%s: stopping all nodes; once more to stop at once", name, extra={"signal": name})
                    self._stop()

    def _hear_member(self, member: Member) -> None:
        assert member.child is not None
        messages = member.child.receive()
        if messages is None:
            self._forget_link(member.child)  # it is about to end
        for message in messages or ():
            if message["event"] == "ready":
                self._is_ready(member, message)
            elif message["event"] == "failed":
                member.error = message["error"]

    def _forget_link(self, child: Child) -> None:
        with suppress(KeyError):
            self._selector.unregister(child.link)

    def _is_ready(self, member: Member, message: Message) -> None:
        member.ready = message
        if isinstance(member, NodeMember):
            member.pin()
        if self._is_announced:
            logger.info("%s serves again (process %d)", member.name, message["pid"])
            self._tell_page()
            return
        if self._is_stopping or not all(it.ready for it in self._members()):
            return
        if self._page is None and self._plan.page is not None:
            self._page = Member("the page of all nodes", partial(_be_page, self._plan))
            self._start(self._page)
            return
        self._is_announced = True
        nodes = [node.ready for node in self._nodes if node.ready]
        if self._plan.secure is not None:
            from ottla.cli.access.secure import tell

            tell(self._plan.secure, f"{nodes[0]['host']}:{nodes[0]['port']}")
        announce(nodes, self._page.ready if self._page else None)

    def _ended(self, member: Member, code: int) -> None:
        child, member.child, member.ready = member.child, None, None
        assert child is not None
        self._forget_link(child)
        child.close()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with exit code {code}"
        if self._is_stopping:
            if code:
                self._exit_code = 1
                logger.error("%s %s while it stopped", member.name, how)
            return
        if not self._is_announced:
            self._refusal = f"{member.name}: {member.error or how}"
            self._stop()
            return
        self._start_later(member, child.pid, how)
        if member is not self._page:
            self._tell_page()

    def _start_later(self, member: Member, pid: int, how: str) -> None:
        now = time.monotonic()
        delay = member.restarts.delay_seconds(now - member.started_s)
        member.due_s = now + delay
        why = f" ({member.error})" if member.error else ""
        deaths = member.restarts.deaths_in_a_row
        member.error = None
        if deaths == 1:
            logger.error("%s (process %d) %s%s: it is started again", member.name, pid, how, why)
        else:
            logger.critical(
                "%s (process %d) %s%s, for the %s time in a row: it is started again in %g s; the others go on",
                *(member.name, pid, how, why, f"{deaths}{_ordinal(deaths)}", delay),
            )

    # What is done.

    def _start(self, member: Member) -> None:
        member.due_s = None
        member.started_s = time.monotonic()
        member.child = Child(member.work, self._leave_behind)
        self._selector.register(member.child.link, selectors.EVENT_READ, partial(self._hear_member, member))
        if member is self._page:
            self._tell_page()

    def _stop(self) -> None:
        self._is_stopping = True
        notify(STOPPING)
        for member in self._members():
            member.due_s = None
        self._tell_all(STOP)

    def _tell_all(self, message: Message) -> None:
        for member in self._living():
            assert member.child is not None
            member.child.send(message)
            member.child.signal(signal.SIGCONT)  # a frozen process would not notice

    def _tell_page(self) -> None:
        if self._page is not None and self._page.child is not None:
            self._page.child.send({"nodes": [node.state() for node in self._nodes]})


def _be_page(plan: Plan, link: UnderSupervisor) -> int:
    from ottla.cli.serve.nodes.page import serve_page

    assert plan.page is not None
    return serve_page(plan.page, plan.configs[0], link)


_SHOWN: Final = ("node_id", "host", "port", "pid", "http", "registry", "rest")


def announce(nodes: list[Message], page: Message | None) -> None:
    """Say on standard output that all nodes are ready: one line for people, or one JSON object for programs."""
    addresses = [f"{node['host']}:{node['port']}" for node in nodes]
    http = page["http"] if page is not None else None
    if sys.stdout.isatty():
        from ottla.runtime.version import version

        where = ", ".join(addresses) + (f", {http}" if http else "")
        many = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        print(f"Ottla {version()} ready on {where} ({many}; stop with Ctrl-C)", flush=True)
    else:
        first = nodes[0]
        line = {"event": "ready", "host": first["host"], "port": first["port"], "node_id": first["node_id"]}
        shown = [{name: node[name] for name in _SHOWN if node[name]} for node in nodes]
        line |= {"nodes": shown} | ({"http": http} if http else {})
        print(json.dumps(line), flush=True)
    notify(READY, f"STATUS=serving with {len(nodes)} nodes on {', '.join(addresses)}")


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")

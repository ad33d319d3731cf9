"""Sessions of classic members: a member that is silent for too long is gone.

A heartbeat only moves a deadline. Each member has one task, which sleeps until the deadline and then looks at it again.
"""

import logging
from functools import partial

import trio

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.member import ClassicMember
from ottla.coordinator.group.naming import who
from ottla.runtime.purgatory import Purgatory

logger = logging.getLogger(__name__)


class Sessions:
    """The sessions of all classic members on one broker."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory

    def touch(self, member: ClassicMember) -> None:
        """The session starts over."""
        before, member.deadline = member.deadline, trio.current_time() + member.session_timeout_ms / 1000
        if member.deadline < before:
            self._purgatory.signal(member)

    async def until_over(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Return when the session has ended, or the member was removed. A heartbeat does not wake this: it looks when
        the deadline has come.
        """
        while not member.removed:
            deadline = member.deadline
            remaining_ms = (deadline - trio.current_time()) * 1000
            if remaining_ms > 0:
                # The deadline comes nearer once: when the first join of a new member is answered.
                await self._purgatory.wait([member], partial(_has_changed, member, deadline), remaining_ms)
            elif member.is_waiting():
                self.touch(member)
            else:
                keys = {"group": group.group_id, "member": member.member_id}
                logger.info(
                    "group %s: the session of %s ended, removed",
                    group.group_id,
                    who(member.member_id, member),
                    extra=keys,
                )
                return

    async def watch_pending(self, group: ClassicGroup, member_id: str, timeout_ms: float) -> None:
        """Forget an id that was handed out (KIP-394) if nobody joins with it in time."""
        await self._purgatory.wait([group], lambda: None if member_id in group.pending_members else True, timeout_ms)
        if group.pending_members.pop(member_id, None) is not None:
            self._purgatory.signal(group)


def _has_changed(member: ClassicMember, deadline: float) -> bool | None:
    return True if member.removed or member.deadline < deadline else None

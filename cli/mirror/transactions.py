"""Decisions of a mirror's source about transactions that are still open in the mirror.

A coordinator decides first, and then writes a marker into each partition. Where a partition has no leader for a while,
its marker comes late, and a promotion in between would abort a part of what is committed elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from ottla.cli import CommandError, options
from ottla.cli.cluster.open_transactions import open_producers
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.messages.transactions.list_transactions import ListTransactionsRequest

_ONGOING: Final = ("Ongoing",)
_DECIDED: Final = ("PrepareCommit", "PrepareAbort")
_BEING_COMMITTED: Final = ("PrepareCommit",)
_COMMITTED: Final = ("CompleteCommit",)
_POLL_SECONDS: Final = 0.5
_NAMED: Final = 10


def wait_for_markers(here: Client, there: Client, topics: Collection[str], seconds: float) -> bool:
    """Return when the source is about to write no marker for a transaction that is open here in these topics; whether
    that was waited for, so that there may be more to copy now.

    Raises CommandError if that takes too long.
    """
    deadline = time.monotonic() + seconds
    has_waited = False
    while waiting := _in_states(there, open_producers(here, topics, seconds), _DECIDED):
        if time.monotonic() > deadline:
            named = ", ".join(sorted(waiting.values())[:_NAMED])
            raise CommandError(
                f"the source has decided how {options.counted(len(waiting), 'transaction')} will end, and not written "
                f"that into every partition yet: {named}; wait, or see `ottla transaction list` there"
            )
        has_waited = True
        time.sleep(_POLL_SECONDS)
    return has_waited


def undecided_there(here: Client, there: Client, topics: Collection[str], seconds: float) -> set[int]:
    """The producer ids with a transaction that is open here in these topics, and of which the source knows as open."""
    return set(_in_states(there, open_producers(here, topics, seconds), _ONGOING))


def committed_there(
    here: Client, there: Client, topics: Collection[str], seconds: float, undecided: Collection[int]
) -> set[int]:
    """The producer ids with a transaction that is open here in these topics and that the source has committed.

    Of those that were not `undecided` before, a completed commit is that of an earlier transaction: what is open comes
    from a late write that no coordinator knows of, and that an administrator of the source has to abort, too.
    """
    open_here = open_producers(here, topics, seconds)
    committed = _in_states(there, open_here & set(undecided), _COMMITTED)
    return {*committed, *_in_states(there, open_here, _BEING_COMMITTED)}


def _in_states(there: Client, producer_ids: Collection[int], states: Collection[str]) -> dict[int, str]:
    """Which of these producer ids are in one of the states, with their transactional ids."""
    if not producer_ids:
        return {}
    found: dict[int, str] = {}
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=sorted(producer_ids))
    for broker in there.metadata([]).brokers:
        answer = there.broker(broker.node_id).call(request)
        if answer.error_code:
            raise BrokerError(answer.error_code, what=f"the transactions of broker {broker.node_id} of the source")
        found |= {it.producer_id: it.transactional_id for it in answer.transaction_states}
    return found

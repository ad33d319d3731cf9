"""What the authorizer costs, with few entries and with many: answers, decisions, and following a change.

    python -m benchmarks.steps.acls            # pyperf: calibrated, in worker processes; see --help, try --fast
    python -m benchmarks.steps.acls --quick    # a table in some seconds, less exact

Half of the entries are about topics of their own, half about one topic that as many users share. All in CPU time. See
also `benchmarks.security --only acls` for what records cost with and without an authorizer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.reporting.figures import shown
from benchmarks.steps.micro import Operation, best_us, by_pyperf
from ottla.metadata.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource
from ottla.security.authorizer import Authorizer

COUNTS = (10, 1_000, 10_000)
HOST = "10.1.2.3"
HOSTS = {"any host": "*", "networks": "10.1.0.0/16"}


def entries(count: int, host: str) -> list[Acl]:
    """As many entries of this host."""

    def entry(number: int, name: str) -> Acl:
        user = f"User:user-{number}"
        return Acl(AclResource.TOPIC, name, AclPattern.LITERAL, user, host, AclOperation.READ, AclPermission.ALLOW)

    half = count // 2
    return [entry(number, f"topic-{number}") for number in range(half)] + [
        entry(number, "shared") for number in range(half)
    ]


def operations() -> Iterator[tuple[str, Operation]]:
    for count in COUNTS:
        for kind, host in HOSTS.items():
            acls = entries(count, host)
            authorizer = Authorizer((), allows_without_acl=False)
            authorizer.replace(acls)
            last = count // 2 - 1
            of_one = (f"User:user-{last}", HOST, AclOperation.READ, AclResource.TOPIC)
            assert authorizer.allows(*of_one, f"topic-{last}")
            assert authorizer.allows(*of_one, "shared")
            suffix = f"{count:,} entries, {kind}"
            yield f"an answer that is known: {suffix}", partial(authorizer.allows, *of_one, f"topic-{last}")
            yield f"decide about a user's own topic: {suffix}", partial(authorizer.decide, *of_one, f"topic-{last}")
            yield f"decide about the shared topic: {suffix}", partial(authorizer.decide, *of_one, "shared")
            yield f"decide about any topic: {suffix}", partial(authorizer._decide_any, *of_one)
            yield f"follow a change: {suffix}", partial(authorizer.replace, acls)


def main() -> None:
    if "--quick" not in sys.argv:
        by_pyperf("benchmarks.steps.acls", "Decisions of the authorizer", operations())
        return
    print("| | CPU, µs |\n|---|---:|")
    for what, operation in operations():
        print(f"| {what} | {shown(best_us(operation))} |", flush=True)


if __name__ == "__main__":
    main()

"""A history: requests by several connections in one order, as plain data that a seed made and a file can hold.

The fields of a request are JSON. Beside plain values there are objects of one key that begins with `$`
(`compat_tests.differential.values` says which), and in every string `~` stands for a prefix that is new each time the
history is played: topics, groups and transactional ids of two histories on one broker are never the same.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.kproto.api_keys import ApiKey

PREFIX_MARK = "~"
_TIMEOUTS = ("session_timeout_ms", "rebalance_timeout_ms", "transaction_timeout_ms")
_LONG_MS = 20_000


@dataclass(frozen=True)
class Step:
    """One thing that a client does. `id` stays when other steps are dropped, so that references hold.

    A step with an `api` sends a request. One that `may_wait` goes on without its answer; that is taken when the
    connection is used again, by a step that does `receive` it, or at the end.
    """

    id: int
    connection: str = "a"
    api: str = ""
    version: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    may_wait: bool = False
    #: What the request's header calls its sender, as a value of a field; None is Kafka's null.
    client_id: Any = "wire"
    #: Bytes that the end of the request lacks, and bytes behind its end.
    cut_bytes: int = 0
    extra_hex: str = ""
    receive: bool = False
    close: bool = False
    wait_ms: int = 0
    wait_for: str = ""
    #: A transactional id: it is waited no longer than until its transaction has ended, on each broker for itself.
    until_ended: str = ""
    #: The node that is killed (by SIGKILL), or started again; of several nodes only. Another one is killed in the place
    #: of the coordinator of the group `spares`, which is not the same on both brokers.
    kill: int = 0
    start: int = 0
    spares: str = ""

    @property
    def api_key(self) -> ApiKey:
        return ApiKey[self.api]

    def to_json(self) -> dict[str, Any]:
        changed = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {name: value for name, value in changed.items() if name == "id" or value != _DEFAULTS[name]}

    def __str__(self) -> str:
        if self.wait_ms:
            return f"{self.id}: wait {self.wait_ms} ms for {self.wait_for}"
        if self.kill or self.start:
            spared = f", if it does not coordinate {self.spares}" if self.spares else ""
            return f"{self.id}: node {self.kill or self.start} {'is killed' if self.kill else 'is started'}{spared}"
        if self.receive or self.close:
            return f"{self.id}: {self.connection} {'receives its answer' if self.receive else 'closes'}"
        rest = {name: value for name, value in self.to_json().items() if name in _SHOWN}
        shown = f" {json.dumps(rest, ensure_ascii=False)}" if rest else ""
        fields = json.dumps(self.fields, ensure_ascii=False)
        return f"{self.id}: {self.connection} {self.api} v{self.version} {fields}{shown}"


_SHOWN = ("may_wait", "client_id", "cut_bytes", "extra_hex")
_DEFAULTS = {
    each.name: each.default_factory() if each.default_factory is not dataclasses.MISSING else each.default
    for each in dataclasses.fields(Step)
}


@dataclass(frozen=True)
class History:
    """Steps, and the names whose state is described at the end."""

    area: str
    seed: int
    steps: tuple[Step, ...]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether a session or a transaction may end while it is played: on a busy machine at another step."""
        short = (step.fields.get(name, _LONG_MS) for step in self.steps for name in _TIMEOUTS)
        return any(step.wait_ms for step in self.steps) or any(each < _LONG_MS for each in short)

    def with_steps(self, steps: tuple[Step, ...]) -> History:
        return dataclasses.replace(self, steps=steps)

    def to_json(self) -> dict[str, Any]:
        whole = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        names = {name: list(value) for name, value in whole.items() if isinstance(value, tuple)}
        return whole | names | {"steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> History:
        names = {name: tuple(data.get(name, ())) for name in ("topics", "groups", "transactional_ids")}
        return cls(data["area"], data["seed"], tuple(Step(**step) for step in data["steps"]), **names)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> History:
        return cls.from_json(json.loads(path.read_text()))

    def __str__(self) -> str:
        return "\n".join(str(step) for step in self.steps)

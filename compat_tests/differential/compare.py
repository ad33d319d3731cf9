"""Where two answers differ, and by what name the same difference is known again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from compat_tests.differential.history import PREFIX_MARK, Step
from compat_tests.differential.normalise import SUBJECTS, Normaliser, subject
from compat_tests.differential.playing.connection import WAITING, Outcome
from compat_tests.differential.playing.play import Player

#: API, path, and what Apache Kafka and Ottla have there.
Key = tuple[str, str, str, str]

_MOST_CHARACTERS: Final = 300
_ABSENT: Final = "absent"
#: Of what an answer is about, what the broker chooses.
_GIVEN: Final = ("topic_id", "member_id")


@dataclass(frozen=True)
class Difference:
    """One field of one step's answer. `path` has no positions: `topics[].error_code`."""

    step: Step
    path: str
    kafka: Any
    ottla: Any
    #: The steps up to this one.
    before: tuple[Step, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def key(self) -> Key:
        """Differences of one key are one: version, step and which name it was do not matter. Each declaration asks."""
        return self.step.api, self.path, _kind(self.path, self.kafka), _kind(self.path, self.ottla)

    def __str__(self) -> str:
        return f"{self.step.api} v{self.step.version} {self.path}: Kafka {shown(self.kafka)}, Ottla {shown(self.ottla)}"


def _kind(path: str, value: Any) -> str:
    """A value, or what it has in common with others of its field: codes count, offsets and names do not."""
    if isinstance(value, str) and value.startswith(PREFIX_MARK):
        return "a name"
    if isinstance(value, int) and not isinstance(value, bool) and not path.endswith("error_code"):
        return str(min(max(value, -3), 0)) if value < 1 else "a number"
    # The numbers of names depend on how much came before.
    return re.sub(r"\b(member|producer|topic|session) \d+(?: of [^\s\"]+)?", r"\1", shown(value))


#: Stands for the step at which a broker's process ended.
THE_END: Final = Step(id=-3, api="PROCESS")


def death(broker: str, log_tail: str) -> Difference:
    """One of the brokers ended by itself while the history was played; the last words of its log tell why."""
    words = [line.strip(" |") for line in log_tail.splitlines() if re.match(r"[ |]*\w+(Error|Exception)\b", line)]
    last = words[-1] if words else "no word of an error"
    kafka, ottla = (f"ended: {last}" if name == broker else "lives" for name in ("kafka", "ottla"))
    return Difference(THE_END, broker, kafka, ottla)


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


def compared(
    steps: tuple[Step, ...], kafka: Player, ottla: Player, prefix: str, *, of_nodes: bool = False
) -> Iterator[Difference]:
    """The differences, in the order of the steps."""
    normalisers = [Normaliser(prefix, player.now_ms, player.new_epoch, of_nodes=of_nodes) for player in (kafka, ottla)]
    for number, step in enumerate(steps):
        if not step.api:
            continue
        words, answers = [], []
        for player, normaliser in zip((kafka, ottla), normalisers, strict=True):
            outcome = player.outcomes.get(step.id, Outcome(WAITING))
            words.append(outcome.word)
            answers.append(normaliser.answer(step, outcome.answer))
        if words[0] != words[1]:
            # What it is that the other one answered tells one such difference from the next.
            ends = [
                word if word != "answered" else f"answered {_errors(answer)}"
                for word, answer in zip(words, answers, strict=True)
            ]
            yield Difference(step, "", ends[0], ends[1], steps[:number])
        else:
            for path, one, other in _differing("", *answers):
                yield Difference(step, path, one, other, steps[:number])


def _errors(answer: Any) -> str:
    found = re.findall(r'"(?:\w+_)?error_code": (-?\d+)', json.dumps(answer, default=str))
    return ",".join(sorted(set(found)))


def _differing(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        codes = [name for name in one if name.endswith("error_code")]
        is_refused = any(one[name] != other.get(name) for name in codes)
        for name in one | other:
            if is_refused and name not in codes and (name not in SUBJECTS or name in _GIVEN):
                # It follows from the code.
                continue
            below = f"{path}.{name}" if path else name
            yield from _differing(below, one.get(name, _ABSENT), other.get(name, _ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        yield from _of_lists(path, one, other)
    else:
        yield path, one, other


def _of_lists(path: str, one: list[Any], other: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Elements are held against each other by what they are about; the order is a difference of its own."""
    about = [[subject(each) for each in each_list] for each_list in (one, other)]
    if about[0] != about[1]:
        counts = Counter(about[0]), Counter(about[1])
        if counts[0] != counts[1]:
            only = [f"has {', '.join(sorted(_roles(counts[i] - counts[1 - i])))}" for i in (0, 1)]
            yield f"{path}[]", only[0], only[1]
            return
        yield f"{path}[]", "in one order", "in another order"
        one, other = (sorted(each_list, key=subject) for each_list in (one, other))
    for first, second in zip(one, other, strict=True):
        # A setting is what a difference is about.
        about_it = first["name"] if path.endswith("configs") else ""
        yield from _differing(f"{path}[{about_it}]", first, second)


def _roles(surplus: Counter[str]) -> set[str]:
    """Names and numbers of what one of the lists lacks do not matter, as `_kind` has it."""
    roles = {re.sub(r'"topic \d+ of [^"]+"', '"topic n"', each) for each in surplus}
    return {re.sub(r'"~[^"]*"', "a name", re.sub(r"\b\d+\b", "n", each)) for each in roles} or {"nothing more"}

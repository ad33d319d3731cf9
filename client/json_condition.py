"""Conditions on tree-like values such as JSON: a path, and what must be there: `$.customer.country == "CZ"`.

Paths are singular queries of RFC 9535 (`$.a.b[0]['c d']`), in which `*` also stands for every member or item; `$` may
be left out. There is no recursive descent, so a condition costs no more than the value has members.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from operator import ge, gt, le, lt
from typing import Any, Final, NamedTuple, TypeAlias

MAX_STEPS: Final = 20
_STEP: Final = re.compile(
    r"""\.(?P<name>[^\s.\[\]=!<>~"']+)|\[\s*(?:(?P<index>-?\d{1,9})|(?P<any>\*)|(?P<quoted>"[^"]*"|'[^']*'))\s*\]"""
)
_COMPARISON: Final = re.compile(r"\s*(?:(?P<operator>==|=|!=|<=|>=|<|>|~)\s*(?P<operand>.*))?", re.DOTALL)


class ConditionError(ValueError):
    """The condition cannot be read; the text is a sentence for the form."""


class Every:
    """The step to every member or item."""


Step: TypeAlias = "str | int | type[Every]"


class Condition(NamedTuple):
    """Holds for a value in which the path leads somewhere; with a comparison, what is there must satisfy it."""

    steps: tuple[Step, ...]
    operator: str = ""
    operand: Any = None

    def holds(self, value: Any) -> bool:
        """Whether it holds; if the path leads to several places, whether it holds in one of them."""
        found = [value]
        for step in self.steps:
            found = [each for place in found for each in _taken(place, step)]
        return any(not self.operator or _COMPARE[self.operator](each, self.operand) for each in found)


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ConditionError."""
    position = 1 if text.startswith("$") else 0
    if not position and not text.startswith((".", "[")):
        text = f".{text}"
    steps: list[Step] = []
    while (found := _STEP.match(text, position)) is not None:
        steps.append(_step(found))
        position = found.end()
    comparison = _COMPARISON.fullmatch(text, position)
    if comparison is None or (not steps and position == 0):
        where = text[position : position + 20].strip()
        raise ConditionError(
            f'{where!r} is not part of a path: write one as $.customer.country == "CZ", or $.items[0].'
        )
    if len(steps) > MAX_STEPS:
        raise ConditionError(f"A path may have at most {MAX_STEPS} steps.")
    if comparison["operator"] is None:
        return Condition(tuple(steps))
    if not comparison["operand"].strip():
        raise ConditionError(f"Nothing follows {comparison['operator']}.")
    return Condition(tuple(steps), comparison["operator"], _literal(comparison["operand"].strip()))


def _step(found: re.Match[str]) -> Step:
    if found["any"] or found["name"] == "*":
        return Every
    if found["index"] is not None:
        return int(found["index"])
    return found["name"] if found["name"] is not None else found["quoted"][1:-1]


def _literal(text: str) -> Any:
    """A JSON value; anything that is not JSON is taken for text without quotes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def _taken(value: Any, step: Step) -> Iterator[Any]:
    if isinstance(value, dict):
        if step is Every:
            yield from value.values()
        elif isinstance(step, str) and step in value:
            yield value[step]
    elif isinstance(value, list):
        if step is Every:
            yield from value
        elif isinstance(step, int) and -len(value) <= step < len(value):
            yield value[step]


def _is_equal(value: Any, operand: Any) -> bool:
    """Equality as in JSON: true is not 1."""
    return isinstance(value, bool) is isinstance(operand, bool) and bool(value == operand)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Numbers are compared with numbers, and text with text."""

    def holds(value: Any, operand: Any) -> bool:
        if isinstance(value, bool) or isinstance(operand, bool):
            return False
        for kinds in ((int, float), (str,)):
            if isinstance(value, kinds) and isinstance(operand, kinds):
                return compare(value, operand)
        return False

    return holds


def _contains(value: Any, operand: Any) -> bool:
    return isinstance(value, str) and (operand if isinstance(operand, str) else json.dumps(operand)) in value


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": _is_equal,
    "==": _is_equal,
    "!=": lambda value, operand: not _is_equal(value, operand),
    "<": _ordered(lt),
    "<=": _ordered(le),
    ">": _ordered(gt),
    ">=": _ordered(ge),
    "~": _contains,
}

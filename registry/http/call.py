"""One request that has been understood, as the handlers see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.registry.http.access import Caller, Right
from ottla.registry.names import DEFAULT_CONTEXT, SubjectName, checked, in_context, parse
from ottla.registry.registry import Registry
from ottla.registry.requests import Query, version_number
from ottla.registry.settings import alias_of


@dataclass(slots=True, kw_only=True)
class Call:
    """A request. `context` is the one in the address, which its subjects are in unless they name another."""

    registry: Registry
    caller: Caller
    parameters: Mapping[str, str]
    query: Query
    context: str = DEFAULT_CONTEXT
    body: dict[str, Any] = field(default_factory=dict)

    def subject(self, right: Right) -> str:
        """The subject in the address, qualified, which the caller may do this to. Raises RegistryError."""
        subject = self.any_subject()
        if right in (Right.READ, Right.READ_SETTINGS):
            subject = alias_of(self.registry.state, subject)
        self.caller.require(right, subject)
        return subject

    def any_subject(self) -> str:
        """The subject in the address, before its rights are checked."""
        return parse(in_context(self.context, checked(self.parameters["subject"]))).qualified

    def scope(self, right: Right) -> str | None:
        """The owner of the settings in question: the subject or the context in the address, or everything."""
        if "subject" in self.parameters:
            subject = self.any_subject()
            self.caller.require(right, subject)
            return subject
        scope = None if self.context == DEFAULT_CONTEXT else SubjectName(self.context, "").qualified
        self.caller.require(right, scope)
        return scope

    def version(self) -> int:
        """The version in the address."""
        return version_number(self.parameters["version"])

    def queried_subject(self) -> str | None:
        """The subject that `?subject=` names, in the context of the address; None without either."""
        subject = self.query.get("subject")
        if subject is None and self.context == DEFAULT_CONTEXT:
            return None
        return in_context(self.context, subject or "")

    def may_read(self, subject: str) -> bool:
        """Whether a list for the caller may contain this subject."""
        return self.caller.may(Right.READ, subject)


class Text(NamedTuple):
    """An answer that is not JSON."""

    text: str


Handler = Callable[[Call], Awaitable[Any]]
"""Returns a value that is sent as JSON, or a Text."""

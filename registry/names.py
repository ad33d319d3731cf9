"""Subjects and the contexts that they are in.

A subject of a context other than the default one is written `:.context:subject`; `:.context:` alone stands for the
context. `.` is the default context, whose subjects are written without it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.registry.errors import invalid_subject
from ottla.registry.limits import MAX_SUBJECT_LENGTH

DEFAULT_CONTEXT: Final = "."
ANY_CONTEXT: Final = ":*:"
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY", "__highest_id"})


class SubjectName(NamedTuple):
    """A subject and its context."""

    context: str
    subject: str

    @property
    def qualified(self) -> str:
        """Its form in the topic and in answers."""
        return self.subject if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.subject}"


def parse(text: str) -> SubjectName:
    """The subject of a qualified name; a name that only looks qualified is a subject of the default context."""
    if text.startswith(":."):
        context, colon, subject = text[1:].partition(":")
        if colon:
            return SubjectName(context, subject)
    return SubjectName(DEFAULT_CONTEXT, text)


def context_of(subject: str) -> str:
    """The context that a qualified subject is in."""
    return parse(subject).context if subject.startswith(":.") else DEFAULT_CONTEXT


def in_context(context: str, subject: str) -> str:
    """A subject as it is written when it is asked for below `/contexts/{context}`."""
    if subject.startswith(":.") or context == DEFAULT_CONTEXT:
        return subject
    return SubjectName(context, subject).qualified


def context_name(text: str) -> str:
    """A context as it is written, always with a dot in front."""
    return text if text.startswith(".") else f".{text}"


def checked(text: str) -> str:
    """A subject that may be registered, without the default context in front. Raises RegistryError 42208."""
    has_control = any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text)
    if not text or has_control or len(text) > MAX_SUBJECT_LENGTH or text in _RESERVED:
        raise invalid_subject(text[:MAX_SUBJECT_LENGTH])
    return parse(text).qualified

"""The regular expressions by which clients name topics (KIP-848) and transactional ids."""

from __future__ import annotations

from typing import Final, Protocol

_MAX_CHARACTERS: Final = 4_096
_MAX_MEMORY_BYTES: Final = 1 << 20


class ClientRegexError(ValueError):
    """It is no expression, or too long. The text is what a client is told."""


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object | None: ...


def compile_client_regex(regex: str) -> Pattern:
    """Compile an expression with RE2, which never takes more than linear time. Raises ClientRegexError.

    The library is loaded for the first expression.
    """
    import re2  # type: ignore[import-untyped]

    if len(regex) > _MAX_CHARACTERS:
        raise ClientRegexError(f"a regular expression of more than {_MAX_CHARACTERS} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        pattern: Pattern = re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ClientRegexError(f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.") from None
    return pattern

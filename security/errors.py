"""Why somebody is not let in."""

from __future__ import annotations


class AuthenticationFailedError(Exception):
    """The credentials were refused. The text goes to the client: it must not say whether a user exists.

    `reason` is for the log, and may say more.
    """

    def __init__(self, text: str, *, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = text if reason is None else f"{text} ({reason})"


class InvalidCredentialsError(Exception):
    """As above, with a text for the log alone; clients are only told that it failed."""


class NoRuleError(Exception):
    """No rule makes a user out of a certificate's name or a Kerberos principal."""

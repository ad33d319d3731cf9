"""Why somebody is not let in."""

from __future__ import annotations


class AuthenticationFailedError(Exception):
    """The credentials were refused. The text goes to the client: it must not say whether a user exists."""


class InvalidCredentialsError(Exception):
    """As above, with a text for the log alone; clients are told no more than that it failed."""


class NoRuleError(Exception):
    """No rule makes a principal of a certificate's name."""

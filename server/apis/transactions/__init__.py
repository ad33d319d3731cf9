"""Transactions and producer ids."""

import ottla.server.apis.groups  # noqa: F401 - one coordinator is not made without the other

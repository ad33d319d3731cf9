"""The real clients, by name, behind the interface of `compat_tests.clients.base`."""

"""Filters: classes that see what passes the proxy, and may change, answer or refuse it.

`filter.py` says what a filter is, `records.py` has filters of records, `chain.py` runs the filters of one client, and
`catalog.py` makes them from a configuration. The other modules are filters that come with Ottla.
"""

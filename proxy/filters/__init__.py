"""Filters: classes that see what passes the proxy, and may change, answer or refuse it.

`filter.py` is what a filter is, `records.py` a filter of records, `chain.py` runs the filters of one client, and
`catalog.py` makes them of a configuration. The other modules are filters that come with Ottla.
"""

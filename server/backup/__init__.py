"""Consistent copies of a data folder, of a running broker as well, and the way back.

`pause` holds a broker's process for a moment, `snapshot` takes what its files are in that moment, and `archive` copies
it, checks it and puts it back.
"""

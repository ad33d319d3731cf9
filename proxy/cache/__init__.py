"""Records of upstream, kept on disk in the batches in which they came.

`segments.py` is the room on disk, `batches.py` reads what is to be kept, `shelf.py` finds it again, `seen.py` says for
how long an answer of upstream counts, `topics.py` which topics may be kept, and `cache.py` puts it together.
"""

"""Turns a declared message and a version into two Python functions, parse and build.

The generated text is straight-line code for the whole tree of structs: neighbouring fields of fixed size share one
`struct` call, which takes the length prefix that follows them along; one-byte varints are read inline; nothing is
looked up by name at run time. `ottla.kproto.reference` says the same by interpretation, and tests hold the two equal.
"""

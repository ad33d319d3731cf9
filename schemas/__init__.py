"""Values that are written with schemas: Avro, JSON Schema and Protobuf, as all of Ottla reads, checks and writes them.

A format's module is loaded when its first schema comes; each stands on a library of the extra `ottla[schemas]`.
"""

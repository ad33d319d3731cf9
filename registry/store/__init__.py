"""The topic `_schemas`: its records, what they amount to, and how it is read and written."""

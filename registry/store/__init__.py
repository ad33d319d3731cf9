"""The topic `_schemas`: its records, the state that they make, and how it is read and written."""

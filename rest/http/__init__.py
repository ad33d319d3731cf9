"""The addresses of the REST proxy."""

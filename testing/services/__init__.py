"""What runs beside a broker under test, in threads of this process: the schema registry and the REST proxy."""

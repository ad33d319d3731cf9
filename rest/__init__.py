"""Records and topics by HTTP, as Confluent's REST proxy has them: a client of a broker, with an HTTP port."""

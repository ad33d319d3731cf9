"""Who a client is and what it may do: SASL mechanisms, credentials and principals. Nothing here opens a socket."""

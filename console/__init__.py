"""The web console: pages over one broker, rendered on the server, for people who look rather than read.

It changes nothing but by a form with a token, shows nothing unescaped, and does a bounded amount of work for a page,
in slices that let the clients' requests run in between. Nothing here is imported unless `ottla.console.enable` asks.
"""

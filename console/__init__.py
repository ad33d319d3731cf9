"""The web console: pages about one broker, rendered on the server.

It changes things only through forms with a token, shows nothing unescaped, and does a bounded amount of work for each
page, in slices between which clients' requests are served. Nothing here is imported unless `ottla.console.enable` asks.
"""

"""The pages: each module answers for one or two addresses, `console` and the request in, a response out."""

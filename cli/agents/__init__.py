"""`ottla mcp`: what agents may ask of a cluster and do with it, as tools of the Model Context Protocol."""

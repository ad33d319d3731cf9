"""Parts of logs in an object store: upload, manifests, reading with a cache, and the sweep of orphans."""

"""A data folder out of an object store: `ottla restore --from`."""

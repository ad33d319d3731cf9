"""Clients of schema registries whose libraries nothing else here needs, in Java, Go, Node.js and Rust."""

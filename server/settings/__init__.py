"""The one declared table of every setting, by concern; `ottla.server.config` reads values through it."""

"""The one declared table of every setting, by concern; `ottla.server.settings.config` reads values through it."""

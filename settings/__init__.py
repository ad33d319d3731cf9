"""The one declared table of every setting, by concern; `ottla.settings.config` reads values through it."""

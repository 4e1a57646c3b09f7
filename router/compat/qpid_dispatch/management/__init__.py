"""`client`, `entity` and `error`."""

"""`schema`, `qdrouter` and `config`."""

"""The language server of `qdpolicy`: what an editor shows while a user writes a policy or a configuration."""

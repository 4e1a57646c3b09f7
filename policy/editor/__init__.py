"""The language server of `qdpolicy`: what an editor shows while somebody writes a policy or a configuration."""

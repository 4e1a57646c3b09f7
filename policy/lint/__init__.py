"""Lint: finds probable mistakes in a policy that a router may accept. Each rule has one file."""

"""Lint: finds probable mistakes in a policy that a router may accept. One file per rule."""

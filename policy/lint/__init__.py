"""Lint: what is probably wrong with a policy, although a router may accept it. One file per rule."""

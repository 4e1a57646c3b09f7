"""Synthetic audit trails: the output of a fleet of routers in quiet months, with planted incidents."""

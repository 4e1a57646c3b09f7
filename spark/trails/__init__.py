"""Synthetic audit trails: what a fleet of routers writes in quiet months, with incidents planted in it."""

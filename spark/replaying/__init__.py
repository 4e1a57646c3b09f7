"""Decides recorded requests by another policy: plain values, no Spark."""

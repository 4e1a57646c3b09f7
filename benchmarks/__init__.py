"""Compares the router with a floor that only moves messages: the cost of policy, routing, security.

See docs/performance.md and `python -m benchmarks --help`. Everything runs on 127.0.0.1 and stops by itself.
"""

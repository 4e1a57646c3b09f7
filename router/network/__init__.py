"""The host of the routing protocol: gives the machine its events, and carries out what it asks for.

envelope  control messages as bytes: this router's own, and others' on their way
host      the machine's clock, links, messages and addresses; what of them management may read

Source: docs/spec/network.md §5-§9.
"""

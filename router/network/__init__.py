"""The host of the routing protocol: gives the machine its events, and carries out its effects.

envelope  control messages as bytes: this router's own, and those that it forwards
host      the machine's clock, links, messages and addresses, and the data for management

Source: docs/spec/network.md §5-§9.
"""

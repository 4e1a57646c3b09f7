"""The compiled parts once more, in Python and for reading: the oracles that the compiled ones are compared with."""

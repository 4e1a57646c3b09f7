"""`command`: the command lines of the tools."""

"""`qdrouterd-entry`: prepares the configuration and the users of a router in a container, and becomes `qdrouterd`."""

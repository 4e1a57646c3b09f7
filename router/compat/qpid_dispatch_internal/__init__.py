"""Inside of the router we replace, as far as scripts and tests import it. Source: docs/spec/management.md §11."""

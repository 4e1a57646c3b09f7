"""The management API of the router we replace. Source: docs/spec/management.md §11."""

"""Evidence for auditors: controls, the queries that answer them, and the pack that contains both."""

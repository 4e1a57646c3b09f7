"""What a policy says of requests that were recorded: plain values, no Spark."""

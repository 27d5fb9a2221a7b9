"""Submit, list, stop and retry workloads, read their logs and events, and run programs inside them."""

"""The Docker Engine API: transport, HTTP, calls, errors, and containers as they were last seen."""

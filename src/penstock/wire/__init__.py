"""The bodies of requests and answers, in one place for OpenAPI."""

"""The Kubernetes API: connection, requests, errors, objects, and the cache of what the cluster has."""

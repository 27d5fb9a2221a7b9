"""Volumes: requests, quotas, and their creation and deletion."""

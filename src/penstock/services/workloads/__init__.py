"""Workloads: submit, list, stop, retry, logs, events and programs inside them."""

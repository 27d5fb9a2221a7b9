"""Workloads and volumes on a Kubernetes cluster. connection.py is the only file that knows lightkube."""

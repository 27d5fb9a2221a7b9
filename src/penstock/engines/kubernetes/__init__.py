"""Workloads and volumes on a Kubernetes cluster. api/connection.py is the only file that knows lightkube."""

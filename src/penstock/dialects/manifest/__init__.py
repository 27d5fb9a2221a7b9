"""Kubernetes manifests: Pods, Jobs and PersistentVolumeClaims, read field by field, and written.

A field that is not supported is an error with its path; nothing is dropped in silence. Imported only where a manifest
is read or written: submitting a task does not need it.
"""

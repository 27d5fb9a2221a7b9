"""The fields Penstock reads of Kubernetes objects: one file for each family of kinds."""

"""Kubernetes manifests: Pods, Jobs and PersistentVolumeClaims, read field by field, and written.

A field that is not carried is an error with its path; nothing is dropped in silence. Imported only where a manifest is
read or written: submitting a task does not need it.
"""

from penstock.dialects.manifest.read import ManifestVolume, ManifestWorkload, NewClaim
from penstock.dialects.manifest.write import write_manifest

__all__ = ["ManifestVolume", "ManifestWorkload", "NewClaim", "write_manifest"]

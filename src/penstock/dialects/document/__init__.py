"""PWM's typed documents: Workload, Volume, Storage, Node, Group and User, read and written.

A key that is not known is an error with its path and what would be right. Imported only where a document is read or
written: submitting a task does not need it.
"""

from penstock.dialects.document.nouns import AskedVolume, Noun, NounDocument, WorkloadDocument
from penstock.dialects.document.write import write_noun, write_workload

__all__ = ["AskedVolume", "Noun", "NounDocument", "WorkloadDocument", "write_noun", "write_workload"]

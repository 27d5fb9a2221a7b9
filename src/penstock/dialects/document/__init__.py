"""PWM's typed documents: Workload, Volume, Storage, Node, Group and User, read and written.

A key that is not known is an error with its path and what would be right. Imported only where a document is read or
written: submitting a task does not need it.
"""

"""Workloads as containers of Docker engines, which are nodes by the documents that name them."""

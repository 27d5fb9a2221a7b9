"""Workloads as containers on Docker engines, which are nodes registered by documents."""

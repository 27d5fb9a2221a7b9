"""What goes over the wire: bodies that are asked for and answers that are given, in one place for OpenAPI."""

from __future__ import annotations

from penstock.wire.asked import Application, Body, Documents, NewToken, NewVolume, Resize, Retry, Submission
from penstock.wire.nodes import GpuPage, GpuPoolView, GpuRow, GpuView, HolderView, NodePage, NodeView
from penstock.wire.pages import Deleted, ErrorBody, Events, EventView, Page, Uploaded
from penstock.wire.server import Check, CheckList, Health, NewTokenView, ServerView, TokenPage, TokenView, Whoami
from penstock.wire.volumes import StorageClassPage, VolumePage, VolumeUse, VolumeView
from penstock.wire.workloads import (
    Applied,
    ApplyResults,
    ArrayView,
    Converted,
    DryRun,
    MountView,
    Summary,
    SummaryPage,
    WorkloadView,
    accelerators,
)

__all__ = [
    "Application",
    "Applied",
    "ApplyResults",
    "ArrayView",
    "Body",
    "Check",
    "CheckList",
    "Converted",
    "Deleted",
    "Documents",
    "DryRun",
    "ErrorBody",
    "EventView",
    "Events",
    "GpuPage",
    "GpuPoolView",
    "GpuRow",
    "GpuView",
    "Health",
    "HolderView",
    "MountView",
    "NewToken",
    "NewTokenView",
    "NewVolume",
    "NodePage",
    "NodeView",
    "Page",
    "Resize",
    "Retry",
    "ServerView",
    "StorageClassPage",
    "Submission",
    "Summary",
    "SummaryPage",
    "TokenPage",
    "TokenView",
    "Uploaded",
    "VolumePage",
    "VolumeUse",
    "VolumeView",
    "Whoami",
    "WorkloadView",
    "accelerators",
]

"""What goes over the wire: bodies that are asked for and answers that are given, in one place for OpenAPI."""

from __future__ import annotations

from penstock.wire.asked import Application, Body, Documents, FirstUser, NewToken, NewVolume, Resize, Retry, Submission
from penstock.wire.looking import (
    GpuMeasure,
    Inspection,
    Measure,
    MeasureView,
    NodeMeasure,
    NodeMeasurePage,
    ProcessMeasure,
)
from penstock.wire.nodes import GpuPage, GpuPoolView, GpuRow, GpuView, HolderView, NodePage, NodeView
from penstock.wire.pages import Deleted, ErrorBody, Events, EventView, Page, Uploaded
from penstock.wire.people import AuditPage, FirstAdmin, GroupPage, UserPage
from penstock.wire.places import StoragePage, StorageView
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
    "AuditPage",
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
    "FirstAdmin",
    "FirstUser",
    "GpuMeasure",
    "GpuPage",
    "GpuPoolView",
    "GpuRow",
    "GpuView",
    "GroupPage",
    "Health",
    "HolderView",
    "Inspection",
    "Measure",
    "MeasureView",
    "MountView",
    "NewToken",
    "NewTokenView",
    "NewVolume",
    "NodeMeasure",
    "NodeMeasurePage",
    "NodePage",
    "NodeView",
    "Page",
    "ProcessMeasure",
    "Resize",
    "Retry",
    "ServerView",
    "StorageClassPage",
    "StoragePage",
    "StorageView",
    "Submission",
    "Summary",
    "SummaryPage",
    "TokenPage",
    "TokenView",
    "Uploaded",
    "UserPage",
    "VolumePage",
    "VolumeUse",
    "VolumeView",
    "Whoami",
    "WorkloadView",
    "accelerators",
]

"""The bodies of requests and answers, in one place for OpenAPI."""

from __future__ import annotations

from penstock.wire.asked import (
    Application,
    Body,
    Conversion,
    Documents,
    FirstUser,
    NewToken,
    NewVolume,
    Resize,
    Retry,
    Submission,
)
from penstock.wire.explaining import Explained, ExplainedNode, ObstacleView
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
from penstock.wire.usage import UsageReport, UsageRow
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
from penstock.wire.written import DocumentPage, DocumentView

__all__ = [
    "Application",
    "Applied",
    "ApplyResults",
    "ArrayView",
    "AuditPage",
    "Body",
    "Check",
    "CheckList",
    "Conversion",
    "Converted",
    "Deleted",
    "DocumentPage",
    "DocumentView",
    "Documents",
    "DryRun",
    "ErrorBody",
    "EventView",
    "Events",
    "Explained",
    "ExplainedNode",
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
    "ObstacleView",
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
    "UsageReport",
    "UsageRow",
    "UserPage",
    "VolumePage",
    "VolumeUse",
    "VolumeView",
    "Whoami",
    "WorkloadView",
    "accelerators",
]

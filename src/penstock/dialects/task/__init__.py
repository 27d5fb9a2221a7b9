"""SkyPilot-style task YAML, read and written."""

from penstock.dialects.task.read import Task, read_task, read_task_json
from penstock.dialects.task.write import write_task

__all__ = ["Task", "read_task", "read_task_json", "write_task"]

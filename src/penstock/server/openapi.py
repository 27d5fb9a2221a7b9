"""The OpenAPI document: what FastAPI finds by itself, and what is the same for every route that asks who is there."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from penstock.domain.policy import Verb
from penstock.server.permissions import NEEDS

GROUP = {
    "name": "group",
    "in": "query",
    "required": False,
    "description": "only this group of yours; what is made belongs to it",
    "schema": {"type": "string", "title": "Group"},
}


class Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """`group` is read where identity is, not by FastAPI: so it is written here, not found."""
        if self.openapi_schema is None:
            for path, operations in super().openapi()["paths"].items():
                for method, operation in operations.items():
                    if NEEDS[method.upper(), path][0] is not Verb.public:
                        operation.setdefault("parameters", []).append(GROUP)
        return super().openapi()

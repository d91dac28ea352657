"""Declarations: YAML documents to `Space` records."""

from ablate.space.load import load, read, until_decided
from ablate.space.schema import json_schema

__all__ = ["json_schema", "load", "read", "until_decided"]

"""Where we search: YAML documents to `Space` records."""

from ablate.space.load import load, read
from ablate.space.schema import json_schema

__all__ = ["json_schema", "load", "read"]

"""Parts of users that a page shows are gone after its test."""

from tests.own.conftest import clean

__all__ = ["clean"]

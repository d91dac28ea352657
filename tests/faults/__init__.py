"""Faults made to real runs. Importing the package registers every kind."""

from tests.faults import kinds_files as kinds_files
from tests.faults import kinds_kills as kinds_kills
from tests.faults import kinds_processes as kinds_processes

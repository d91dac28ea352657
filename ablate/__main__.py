"""Lets `python -m ablate` do the same as `ablate`."""

from ablate.cli import main

main()

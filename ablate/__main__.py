"""`python -m ablate` is `ablate`."""

from ablate.cli import main

main()

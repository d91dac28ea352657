"""What a benchmark ran on."""

from __future__ import annotations

from datetime import UTC, datetime

from ablate.machine import provenance


def machine_text() -> str:
    """The machine, its versions and the date."""
    machine = provenance.collect()
    gpus = f", {machine.gpus}" if machine.gpus else ""
    return (
        f"{machine.cpu}, {machine.cores} cores{gpus}, Python {machine.python}, torch"
        f" {machine.torch}, {datetime.now(UTC):%Y-%m-%d}"
    )

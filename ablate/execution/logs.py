"""Which services log the epochs of a study while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ablate.errors import ExecutorError
from ablate.machine.provenance import install_extra
from ablate.text.advice import option

# Services that epochs can also be logged to while trials run, and the package that each
# of them needs.
SERVICES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}


@dataclass(frozen=True)
class Logs:
    """Which services log the epochs of a study while it runs.

    Args:
        services: names of the services.
        folder: the folder below which they keep their files.
        study: name of the study.
        factors: the factors that the name of a run shows.
    """

    services: tuple[str, ...] = ()
    folder: Path = Path()
    study: str = ""
    factors: tuple[str, ...] = ()


def check_installed(service: str) -> None:
    """Raises ExecutorError if the package of a service is not installed."""
    if find_spec(SERVICES[service]) is None:
        raise ExecutorError(
            f"{option('log')} {service} needs a package that is not installed:"
            f" {install_extra(service)}"
        )

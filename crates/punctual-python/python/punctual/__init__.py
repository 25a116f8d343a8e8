"""Real-time virtualization in Python: check, simulate and size hosts of VMs with deadlines.

>>> import punctual
>>> host = punctual.build(
...     machine={"processors": 1},
...     pool={"guests": {"policy": "deferrable"}},
...     domain={"vm": {"budget": "3ms", "period": "10ms", "task": {"t": {"period": "20ms", "cost": "4ms"}}}},
... )
>>> host.check().all_guaranteed
True
>>> host.simulate().missed
0

``docs/python.md`` is the manual.
"""

from punctual._errors import ErrorRecord, HostFileError, PunctualError, ViolationError
from punctual._frames import Figure, Report
from punctual._generate import generate, task_set
from punctual._grid import Sweep, run
from punctual._place import place, what_if
from punctual._policy import Params, Policy
from punctual._punctual import (
    Grid,
    Guarantees,
    Host,
    Plan,
    Reproduction,
    Results,
    Synthesis,
    Table,
    __version__,
    policies,
    reproduce,
)
from punctual._pycpa import from_pycpa
from punctual._sweep import sweep


def build(**tables: object) -> Host:
    """A host from keywords: the tables and keys of a host file, `name` and `duration` among them."""
    return Host.from_dict(tables)


__all__ = [
    "ErrorRecord",
    "Figure",
    "Grid",
    "Guarantees",
    "Host",
    "HostFileError",
    "Params",
    "Plan",
    "Policy",
    "PunctualError",
    "Report",
    "Reproduction",
    "Results",
    "Sweep",
    "Synthesis",
    "Table",
    "ViolationError",
    "__version__",
    "build",
    "from_pycpa",
    "generate",
    "place",
    "policies",
    "reproduce",
    "run",
    "sweep",
    "task_set",
    "what_if",
]

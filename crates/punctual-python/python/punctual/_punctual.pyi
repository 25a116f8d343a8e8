"""The part of the package that is written in Rust."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, final

from punctual._frames import Report
from punctual._policy import Policy

__version__: str

def policies() -> list[str]:
    """The policies that a host file can name."""

def reproduce(
    paper: str,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    task_sets: int | None = None,
    progress: Callable[[str, int, int], object] | None = None,
    threads: int | None = None,
) -> Reproduction:
    """Runs the simulated experiments of a paper, with a verdict on each of its claims.

    `paper` is one of rt-xen, rtca, vmm-io, nautilus and rt-stack; the keywords are options of `punctual
    reproduce`. `progress` is called with what runs, and the numbers of finished and of all its simulations.
    """

@final
class Reproduction:
    """A paper's tables and figures beside our own numbers, with a verdict on each of its claims."""

    @property
    def claims(self) -> Table:
        """The claims of the paper, one a row, with our numbers and a verdict."""
    @property
    def tables(self) -> list[str]:
        """The names of the tables."""
    def table(self, name: str) -> Table:
        """A table, as it is printed: its cells are texts."""
    @property
    def curves(self) -> Table:
        """All curves: a row for each point, with the mean, the least and the greatest over the task sets."""
    def to_dict(self) -> dict[str, Any]:
        """What `punctual reproduce --json` prints, as dicts and lists."""
    def files(self) -> dict[str, str]:
        """What `punctual reproduce --out` writes: the content of each file by its name."""
    def _repr_html_(self) -> str: ...

@final
class Grid:
    """A host at every combination of values that keys of its file take, the last dimension fastest."""

    def __init__(
        self,
        host: Host,
        vary: Mapping[str, Iterable[object]],
        *,
        policy: Sequence[str] = (),
        runs: int = 1,
        metrics: Sequence[str] = (),
        results: bool = False,
        skip_invalid: bool = False,
    ) -> None:
        """The keywords are the options of `punctual sweep`; `results` keeps what `json` needs.

        All points are read, so an invalid one is an error at once, unless `skip_invalid` leaves it out.
        """
    @property
    def keys(self) -> list[str]:
        """The keys, `policy` last where policies vary."""
    def __len__(self) -> int:
        """How many points there are."""
    def __getitem__(self, point: int) -> dict[str, str]:
        """The values of a point by their keys."""
    def compute(
        self, points: Sequence[int], *, directory: str | PathLike[str] | None = None, threads: int | None = None
    ) -> list[bytes]:
        """Computes points, or takes those from `directory` that are finished and keeps the others there.

        An outcome is bytes that only the other methods read. They can go from process to process.
        """
    def csv(self, outcomes: Sequence[bytes]) -> str:
        """What `punctual sweep --csv` prints of these outcomes, those of all points."""
    def json(self, outcomes: Sequence[bytes]) -> str:
        """What `punctual sweep --json` prints of these outcomes, those of all points of a grid with `results`."""
    def table(self, outcomes: Sequence[bytes]) -> Table:
        """The same as `csv`, as a table."""
    def svg(
        self, outcomes: Sequence[bytes], metric: str, x: str | None = None, over: Sequence[str] = ()
    ) -> str:
        """What `punctual sweep --svg` writes of these outcomes, those of all points."""

@final
class Host:
    """A machine, its pools, VMs, tasks and networks, as a host file describes them.

    It never changes; `replace` makes another one.
    """

    @staticmethod
    def from_file(
        path: str | PathLike[str],
        *,
        set: Sequence[str] = (),
        seed: int | None = None,
        duration: str | None = None,
        policy: str | None = None,
        overheads: str | None = None,
    ) -> Host:
        """Reads a host file; the keywords are the command line's options of these names."""
    @staticmethod
    def from_toml(
        text: str | bytes,
        name: str = "host.toml",
        *,
        set: Sequence[str] = (),
        seed: int | None = None,
        duration: str | None = None,
        policy: str | None = None,
        overheads: str | None = None,
    ) -> Host:
        """Parses the text of a host file; `name` stands in its errors."""
    @staticmethod
    def from_dict(tables: dict[str, Any], name: str = "host.toml") -> Host:
        """A host from tables in Python: dicts with the keys of a host file."""
    def replace(
        self,
        *,
        set: Sequence[str] = (),
        seed: int | None = None,
        duration: str | None = None,
        policy: str | None = None,
        overheads: str | None = None,
    ) -> Host:
        """The same host file with other changes on top of those made already."""
    def to_toml(self) -> str:
        """The host as a host file with everything spelled out, generated tasks included."""
    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def duration_ns(self) -> int:
        """How long a simulation lasts, in ns."""
    @property
    def tasks(self) -> Table:
        """The tasks, one a row."""
    def check(self, *, enforced_every: str | None = None) -> Guarantees:
        """Which deadlines are guaranteed, without running anything: `punctual check`."""
    def simulate(
        self,
        *,
        blame: bool = False,
        jobs: bool = False,
        slices: bool = False,
        packets: bool = False,
        policies: dict[str, Callable[[int], Policy]] | None = None,
    ) -> Results:
        """Simulates the host for its duration: `punctual sim`.

        Jobs, slices and packets that are not listed now are listed by another simulation when they are
        asked for. `policies` has policies in Python by the name of the pool or VM whose scheduler they
        replace: classes, which are called with the number of processors.
        """
    def synthesize(
        self,
        *,
        periods: Literal["given", "free"] = "given",
        candidates: Sequence[str] = (),
        granularity: str = "100us",
        margin: str = "0%",
        priorities: Literal["given", "free"] = "given",
        placement: Literal["auto", "first-fit", "best-fit", "worst-fit", "exact"] = "auto",
        effort: int = 100_000,
    ) -> Synthesis:
        """The smallest budgets that guarantee every deadline: `punctual synthesize`."""

@final
class Guarantees:
    """What is guaranteed of a host: the answer of `punctual check`."""

    @property
    def all_guaranteed(self) -> bool:
        """Is every deadline of a task or chain guaranteed?"""
    @property
    def tasks(self) -> Table:
        """The tasks with deadlines, one a row."""
    def to_dict(self) -> dict[str, Any]:
        """The answers as `punctual check --json` prints them."""
    def _repr_html_(self) -> str: ...

@final
class Synthesis:
    """Budgets that guarantee every deadline, or why there are none: the answer of `punctual synthesize`."""

    @property
    def found(self) -> bool:
        """Are there budgets that guarantee every deadline?"""
    @property
    def host(self) -> Host | None:
        """The host with the budgets; `None` if there are none."""
    @property
    def toml(self) -> str | None:
        """The host file with the budgets: the text that was given, with other numbers."""
    def to_dict(self) -> dict[str, Any]:
        """The answer as `punctual synthesize --json` prints it."""

def _task_set(
    utilizations: Sequence[float], seed: int, periods: str, deadlines: str
) -> list[tuple[int, int, int]]: ...
def _place(bytes: bytes, name: str, method: str) -> Plan: ...
def _what_if(bytes: bytes, name: str, vm: str) -> dict[str, Any]: ...

@final
class Plan:
    """Which VM of a fleet goes to which host: the answer of `punctual place`."""

    @property
    def all_placed(self) -> bool:
        """Has every VM a host?"""
    @property
    def hosts_used(self) -> int:
        """Hosts with VMs."""
    @property
    def hosts_min(self) -> int:
        """Hosts that any plan for the placed VMs has at least."""
    @property
    def vms(self) -> Table:
        """The VMs in the order of the hosts, those without a host last, one a row."""
    def hosts(self) -> dict[str, Host]:
        """The hosts with VMs, by name."""
    def to_dict(self) -> dict[str, Any]:
        """The plan as `punctual place --json` prints it."""
    def _repr_html_(self) -> str: ...

@final
class Results:
    """What a simulation measured: the answer of `punctual sim`."""

    @property
    def host(self) -> Host:
        """The host that was simulated, everything spelled out."""
    @property
    def missed(self) -> int:
        """Jobs that missed their deadlines."""
    @property
    def jobs(self) -> Table:
        """A row for each job, as `punctual sim --jobs` writes it."""
    @property
    def slices(self) -> Table:
        """A row for each time in which a processor or vCPU did the same."""
    @property
    def packets(self) -> Table:
        """A row for each packet that arrived."""
    @property
    def blame(self) -> Table:
        """Why jobs were late; needs `simulate(blame=True)`."""
    @property
    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
    def table(self, name: str) -> Table:
        """A table as `punctual report --csv` writes it: tasks, vcpus, domains, flows and others."""
    def summary(self) -> dict[str, Any]:
        """Counts of all jobs together, with the names of the JSON form."""
    def to_json(self) -> str:
        """The results as `punctual sim --json` prints them."""
    def to_dict(self) -> dict[str, Any]:
        """The same as dicts and lists."""
    def svg(self, *, begin: str | None = None, end: str | None = None, items: int = 3_000) -> str:
        """The timeline as SVG; it begins with the run, or at the first missed deadline."""
    def _repr_svg_(self) -> str: ...
    def perfetto(self, path: str | PathLike[str]) -> None:
        """Writes what happened as a Perfetto trace, as `punctual sim --trace` does."""
    def report(
        self,
        path: str | PathLike[str] | None = None,
        *,
        begin: str | None = None,
        end: str | None = None,
        items: int = 300_000,
    ) -> Report:
        """The page of `punctual sim --report`: shown in a notebook, or saved."""

@final
class Table:
    """A table: columns of whole numbers, texts and truth values, each of which may lack values.

    Its memory is Arrow's, and programs that know Arrow's C interface take it without a copy.
    """

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> list[Any]:
        """The values of a column as a list."""
    def to_dict(self) -> dict[str, list[Any]]:
        """The columns by name, each as a list."""
    def to_pandas(self) -> Any:
        """The table as a data frame of pandas."""
    def to_polars(self) -> Any:
        """The table as a data frame of polars."""
    def to_arrow(self) -> Any:
        """The table as a table of pyarrow."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def _repr_html_(self) -> str: ...

"""Policies in Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Params:
    """The parameters of a unit, as the host file has them; times are in ns."""

    budget_ns: int | None
    period_ns: int | None
    deadline_ns: int | None
    priority: int | None
    weight: int | None


class Policy:
    """A scheduling policy for prototypes: subclass it, and give it to `Host.simulate(policies=...)`.

    Units are vCPUs or tasks, numbered from 0 in the order of `insert`; processors are numbered from 0; times
    are in ns and never go back. A method that answers `None` asks all processors to pick again; otherwise it
    answers the numbers of those that should. `docs/write-a-policy.md` explains the contract.
    """

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus

    def insert(self, now: int, unit: int, params: Params) -> None:
        """The unit is there, asleep."""

    def wake(self, now: int, unit: int) -> Iterable[int] | None:
        """The unit got work."""
        return None

    def sleep(self, now: int, unit: int) -> Iterable[int] | None:
        """The unit has no more work."""
        return None

    def set_deadline(self, now: int, unit: int, deadline: int) -> Iterable[int] | None:
        """The unit's current work is due then; called before `wake` and when queued work becomes current."""
        return ()

    def charge(self, now: int, cpu: int, unit: int, ran: int) -> None:
        """The unit has run that long on the processor, not counting what was charged before."""

    def pick(self, now: int, cpu: int) -> int | None | tuple[int | None, int | None]:
        """What the processor does from now on: a unit or `None`, or one of these and until when at most."""
        raise NotImplementedError

    def next_timer(self) -> int | None | tuple[int, int | None]:
        """When something changes by time alone, and which processor has to be charged before."""
        return None

    def on_timer(self, now: int) -> Iterable[int] | None:
        """The time of `next_timer` has come."""
        return None

    def account(self, unit: int) -> int | None:
        """The budget that is left to the unit; `None` if the policy keeps none."""
        return None

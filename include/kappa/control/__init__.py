"""The acts of people and schedulers on a topology: start, stop, plan, replay, cut over, roll back, abort, retire.

Free functions over the record of epochs and the ledgers; none needs a JVM. Each is idempotent, and whatever is
interrupted in the middle is finished by calling it again. The work itself is done by drivers, which find what to do on
record.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappa.control.adoptions.adoption import adopt, adoption_plan, by_checkpoint, by_file, by_group
    from kappa.control.approval import approve, ask, reject
    from kappa.control.cutover import approval_terms, cut_over, cut_over_together, previous, recall_together, rollback
    from kappa.control.drivers import answered_reason, check_wanted, start, stop
    from kappa.control.environments import missing_environment
    from kappa.control.overview import (
        Progress,
        TopologyStatus,
        certify,
        check_name,
        chronicle,
        diff,
        history,
        progress,
        record,
        status,
    )
    from kappa.control.removals.removal import abort, clean, housekeeping, retire
    from kappa.control.replays import plan, rebuild_request, replay, supersede
    from kappa.driver.processes.process import DriverStatus, await_end, driver_status, ensure_driver, wanted_drivers

__all__ = [
    "DriverStatus",
    "Progress",
    "TopologyStatus",
    "abort",
    "adopt",
    "adoption_plan",
    "answered_reason",
    "approval_terms",
    "approve",
    "ask",
    "await_end",
    "by_checkpoint",
    "by_file",
    "by_group",
    "certify",
    "check_name",
    "check_wanted",
    "chronicle",
    "clean",
    "cut_over",
    "cut_over_together",
    "diff",
    "driver_status",
    "ensure_driver",
    "history",
    "housekeeping",
    "missing_environment",
    "plan",
    "previous",
    "progress",
    "rebuild_request",
    "recall_together",
    "record",
    "reject",
    "replay",
    "retire",
    "rollback",
    "start",
    "status",
    "stop",
    "supersede",
    "wanted_drivers",
]

#: Module -> the names that this package hands on. A module is imported on first use: a command needs few of them.
_HOMES = {
    "kappa.control.adoptions.adoption": ("adopt", "adoption_plan", "by_checkpoint", "by_file", "by_group"),
    "kappa.control.approval": ("approve", "ask", "reject"),
    "kappa.control.cutover": (
        "approval_terms",
        "cut_over",
        "cut_over_together",
        "previous",
        "recall_together",
        "rollback",
    ),
    "kappa.control.drivers": ("answered_reason", "check_wanted", "start", "stop"),
    "kappa.control.environments": ("missing_environment",),
    "kappa.control.overview": (
        "Progress",
        "TopologyStatus",
        "certify",
        "check_name",
        "chronicle",
        "diff",
        "history",
        "progress",
        "record",
        "status",
    ),
    "kappa.control.removals.removal": ("abort", "clean", "housekeeping", "retire"),
    "kappa.control.replays": ("plan", "rebuild_request", "replay", "supersede"),
    "kappa.driver.processes.process": ("DriverStatus", "await_end", "driver_status", "ensure_driver", "wanted_drivers"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kappa.control' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)

"""Approvers: the actors that are one person, and the people whose approvals count.

Two approvers are two people. An Airflow login is one person's, behind a password. The name of a user of this host is
one too, as long as nobody else has a say on it: where drivers or the lake are another host's, the same person may be
root here, or somebody else. There only approvals by an Airflow login count.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path

import psutil

from kappa.config import Config
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record.epoch_record import TopologyRecord
from kappa.record.events import Event
from kappa.store.address import is_remote

#: How an actor begins that logged in to Airflow.
AIRFLOW = "airflow:"
#: File systems that other hosts write to as well (mount(8), mount.fuse3(8)).
_SHARED = re.compile(r"nfs4?|cifs|smb3|smbfs|ceph|glusterfs|lustre|beegfs|gpfs|afs|ocfs2|gfs2")
_SHARED_BY_FUSE = re.compile(r"fuse\.(sshfs|s3fs|gcsfuse|glusterfs|ceph|rclone|goofys|juicefs|blobfuse2)")


def person(actor: str) -> str:
    """The name by which an actor is known, the same in Airflow and in a terminal."""
    return actor.removeprefix(AIRFLOW).strip().lower()


def is_same(one: str, other: str) -> bool:
    """Whether two actors are, or may be, one person.

    Airflow may know ``ann@example.org`` or ``EXAMPLE\\\\ann`` where the host knows ``ann``: between the two only what
    both have counts. Two logins of Airflow are as different as Airflow has them.

    Examples:
        >>> from kappa.control.approvers import is_same
        >>> is_same("ann", "airflow:Ann@example.org"), is_same("airflow:ann@a.org", "airflow:ann@b.org")
        (True, False)
    """
    if one.startswith(AIRFLOW) == other.startswith(AIRFLOW):
        return person(one) == person(other)
    return _short(person(one)) == _short(person(other))


def people(approvals: Iterable[Event], *, airflow_only: bool) -> list[Event]:
    """The approvals that count, one per person, oldest first.

    Args:
        approvals: of the same terms, oldest first.
        airflow_only: whether only those by an Airflow login count.
    """
    votes: list[Event] = []
    for event in approvals:
        if airflow_only and not event.actor.startswith(AIRFLOW):
            continue
        if not any(is_same(event.actor, other.actor) for other in votes):
            votes.append(event)
    return votes


def elsewhere(config: Config, record: TopologyRecord) -> str:
    """Why only approvals by an Airflow login count for a topology; empty where those of users of this host do too."""
    if config.approvals_from == "airflow":
        return "KAPPA_APPROVALS_FROM is airflow"
    if config.launcher == "elsewhere":
        return "drivers are started on another host (KAPPA_LAUNCHER=elsewhere)"
    kind = _shared_kind(config.lake)
    if kind:
        return f"the lake is not this host's own ({kind})"
    # What no variable of the caller's changes: where the drivers of what is live, and of what would be, ran last.
    for epoch in (record.live, record.candidate.epoch if record.candidate is not None else None):
        if epoch is not None:
            beat = heartbeat.read(EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch).heartbeat)
            if beat is not None and beat.host != socket.gethostname():
                return f"the driver of epoch {epoch} is one of host {beat.host}"
    return ""


def _short(name: str) -> str:
    return name.rpartition("\\")[2].partition("@")[0]


def _shared_kind(lake: str) -> str:
    """The kind of file system of a lake that other hosts have too; empty where it is a disk of this one."""
    if is_remote(lake):
        return lake.partition("://")[0]
    path = os.path.realpath(lake)
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    place = next((str(folder) for folder in (Path(path), *Path(path).parents) if str(folder) in mounts), "/")
    kind = mounts.get(place, "")
    return kind if _SHARED.fullmatch(kind) or _SHARED_BY_FUSE.fullmatch(kind) else ""

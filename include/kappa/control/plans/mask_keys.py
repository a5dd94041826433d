"""The key of masked values, before a move is put on record that only a driver with that key can make."""

from __future__ import annotations

from kappa.config import Config
from kappa.errors import DamagedTableError, MoveRefusedError, NewerFormatError
from kappa.names import EpochPaths
from kappa.record.ledger import Ledger
from kappa.slices.run import MASK
from kappa.topology.masking import SHORTEST, fingerprint


def check_key(config: Config, topology: str, epoch: int) -> None:
    """Raise where the driver of an epoch would end at once, since its values are masked under another key.

    Where drivers are started elsewhere and no key is set here, nothing is known of theirs.

    Raises:
        MoveRefusedError: the key is another one, or none is set.
    """
    try:
        commits = Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).ledger).state().commits
    except (DamagedTableError, NewerFormatError):  # whoever looks for its environment weighs that
        return
    epoch_mask = commits[0].detail.get(MASK, "") if commits else ""
    if not epoch_mask or (config.launcher == "elsewhere" and not config.mask_key):
        return
    now = fingerprint(config.mask_key) if len(config.mask_key) >= SHORTEST else ""
    if now == epoch_mask:
        return
    key = f"has {now}" if now else f"is not set, or shorter than {SHORTEST} characters"
    raise MoveRefusedError(
        f"Epoch {epoch} of {topology!r} masks values under the key with fingerprint {epoch_mask}, and KAPPA_MASK_KEY "
        f"{key}: its driver would end at once. Nothing was changed. Set the key of that epoch here and where drivers "
        "start; or compute the history again under this one: "
        f"kappa replay {topology} --allow mask-key-changed --execute",
        epoch_mask=epoch_mask,
        now=now,
    )

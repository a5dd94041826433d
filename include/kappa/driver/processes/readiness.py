"""Whether the interpreter that runs this module can run a topology's driver: ``python -m`` with a folder and a name.

The code of a release says so itself, in the interpreter that is to run it, since only that code knows what it needs.
Older code asks: words, exit codes and the fields of the answer stay. Imports nothing before it is asked.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

#: Rooms whose modules drivers import, many of them late.
_ROOMS = ("driver", "monitoring", "slices", "archive", "record", "presence", "delta", "spark", "kafka", "wire", "store")


def answer(folder: Path, topology: str) -> dict[str, Any]:
    """What a driver says of a topology when it goes over to this code.

    Returns:
        ``masked`` and ``times``, as in the ledger's row of an upgrade.

    Raises:
        Exception: whatever an import raises.
    """
    from kappa.environments import requirements
    from kappa.errors import CodeError

    if unmet := requirements.unmet():
        raise CodeError(f"the release needs other libraries: {'; '.join(unmet)}")
    for module in requirements.REQUIREMENTS.values():
        importlib.import_module(module)
    for room in _ROOMS:
        package = importlib.import_module(f"kappa.{room}")
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(one.name)
    from kappa.topology import registry
    from kappa.topology.shapes import masked_of, timings_as_dict, timings_of

    loaded = registry.load_stored(folder, topology)
    return {"masked": masked_of(loaded), "times": timings_as_dict(timings_of(loaded.sources))}


if __name__ == "__main__":
    try:
        values = answer(Path(sys.argv[1]), sys.argv[2])
    except BaseException as error:  # a file of a topology may raise anything
        sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])
    sys.stdout.write(f"\n{json.dumps(values)}\n")  # a line of its own, whatever an import printed

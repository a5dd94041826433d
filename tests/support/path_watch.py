"""A process that reads Delta tables by path, again and again, and writes down what it read; any error ends it.

Arguments: the file to write to, a file that ends it, the options of the tables' store as JSON, and the tables.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from deltalake import DeltaTable


def watch(target: Path, end: Path, options: dict[str, str], paths: list[str]) -> None:
    """Write a line for each version of a table that is seen: path, version and rows."""
    versions: dict[str, int] = {}
    with target.open("w") as lines:
        while not end.exists():
            for path in paths:
                if path not in versions and not DeltaTable.is_deltatable(path, options):
                    continue
                table = DeltaTable(path, storage_options=options)
                if versions.get(path) != table.version():
                    versions[path] = table.version()
                    rows = table.to_pyarrow_table().to_pylist()
                    lines.write(json.dumps({"path": path, "version": table.version(), "rows": rows}) + "\n")
                    lines.flush()
            time.sleep(0.05)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:])

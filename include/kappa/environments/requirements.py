"""What a driver of this release needs of the interpreter that runs it.

Stored with the code of an epoch, as all of the platform: the wheel that has these ranges as well is of the interpreter
that asks for an upgrade, not of the one that is to run it.
"""

from __future__ import annotations

import operator
import platform
import re
from importlib.metadata import PackageNotFoundError, version

#: Versions of Python, as in ``pyproject.toml``.
PYTHON = ">=3.11,<3.13"
#: Requirement, as in ``pyproject.toml`` -> a module by which a driver imports it, also where that is late in its life.
REQUIREMENTS = {
    "confluent-kafka>=2.16.1,<3": "confluent_kafka.schema_registry",
    "croniter>=7,<8": "croniter",
    "deltalake>=1.6.6,<1.7": "deltalake",
    "numpy>=2": "numpy",
    "obstore>=0.12.1,<0.13": "obstore.store",
    "orjson>=3.10": "orjson",
    "psutil>=6": "psutil",
    "pyarrow>=20": "pyarrow.dataset",
    "rich>=13": "rich",
    "sqlglot>=30,<31": "sqlglot",
    "structlog>=24": "structlog",
    "typer>=0.26": "typer",
    "attrs>=24": "attrs",
    "authlib>=1.8": "authlib",
    "cachetools>=6": "cachetools",
    "httpx2>=2,<3": "httpx2",
    "cryptography>=45": "cryptography.x509",
    "delta-spark>=4.4,<4.5": "delta.tables",
    "fastavro>=1.9,<2": "fastavro",
    "pandas>=2.2,<3": "pandas",
    "prometheus_client>=0.26": "prometheus_client",
    "pyspark>=4.2,<4.3": "pyspark.sql",
}

_COMPARISONS = {">=": operator.ge, "<": operator.lt}


def unmet() -> list[str]:
    """The requirements that what is installed for this interpreter does not meet, in words.

    A library without metadata has no version to compare, such as Spark from an archive: its import has to do.
    """
    versions = {"Python": (platform.python_version(), PYTHON)}
    for requirement in REQUIREMENTS:
        name, ranges = parts(requirement)
        try:
            versions[name] = (version(name), ranges)
        except PackageNotFoundError:
            continue
    return [
        f"{name} is {number}, not {ranges}" for name, (number, ranges) in versions.items() if not is_in(number, ranges)
    ]


def parts(requirement: str) -> tuple[str, str]:
    """Name and ranges of a requirement.

    Raises:
        ValueError: it has another form.
    """
    match = re.fullmatch(r"([\w.-]+?)((?:(?:>=|<)[\d.]+,?)+)", requirement)
    if match is None:
        raise ValueError(f"{requirement!r} is not a name with ranges of >= and <")
    return match[1], match[2]


def is_in(number: str, ranges: str) -> bool:
    """Whether a version is in all ranges, by the numbers of its release: a candidate counts as what it is to become.

    Example:
        >>> is_in("1.6.10", ">=1.6.6,<1.7"), is_in("1.7.0rc1", ">=1.6.6,<1.7")
        (True, False)
    """
    release = _numbers(number)
    return all(_COMPARISONS[sign](release, _numbers(bound)) for sign, bound in re.findall(r"(>=|<)([\d.]+)", ranges))


def _numbers(number: str) -> tuple[int, ...]:
    """The numbers of a release without zeros at the end: 2 and 2.0 are one."""
    match = re.match(r"v?\d+(\.\d+)*", number)
    numbers = [int(part) for part in match[0].lstrip("v").split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)

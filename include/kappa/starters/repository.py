"""The files of a repository: settings, a topology with its test, DAGs, containers, the steps of a merge. Pure."""

from __future__ import annotations

from string import Template

from kappa.starters import StarterShape, containers, handbook, starter, stem, workflow

_SETTINGS = """
# Settings of every command below this folder. Variables KAPPA_* go over them; secrets are variables only.
bootstrap_servers = "127.0.0.1:9092" # your brokers, separated by commas
lake = ".kappa/lake" # a path that all hosts mount, or s3://bucket/prefix
topologies = "include/topologies"
"""

# Not `kappa.py`: to a program that is run in its folder, a file of that name would be the package.
_DAGS = '''
"""The DAGs of every topology in include/topologies."""

from kappa_airflow import dags

dags()
'''

_JOB = '''
"""Runs the driver of an epoch in the foreground, as `python -m kappa.driver` does."""

from kappa.driver.__main__ import main

main()
'''

_REQUIREMENTS = """
kappa-replay[driver,airflow]==%version
"""

_IGNORED = """
.env
.kappa/
.venv/
__pycache__/
logins/*
!logins/.gitkeep
"""

_PYTEST = """
[pytest]
testpaths = tests
markers =
    spark: starts Spark
"""


WORKFLOW_FILE = ".github/workflows/kappa.yaml"


class _Draft(Template):
    """Text in which ``%name`` is replaced: YAML and shell have the dollar for themselves."""

    delimiter = "%"


def repository(name: str, shape: StarterShape, *, version: str) -> dict[str, str]:
    """The files of a repository with one topology: path below its root -> text, in the order of writing.

    Args:
        name: the topology's name.
        shape: the topology's shape.
        version: the version of Kappa that the repository runs.

    Raises:
        TopologyError: no topology can have that name.
    """
    first = starter(name, shape, folder="../../include/topologies")
    drafts = {
        ".gitignore": _IGNORED,
        "requirements.txt": _REQUIREMENTS,
        "pytest.ini": _PYTEST,
        "Dockerfile": containers.DOCKERFILE,
        ".dockerignore": containers.IGNORED,
        "env.example": containers.VARIABLES,
        "docker-compose.yaml": containers.COMPOSE,
        WORKFLOW_FILE: workflow.WORKFLOW,
        "README.md": handbook.README,
        "plugins/.gitkeep": "",
        "logins/.gitkeep": "",
        "jobs/run_epoch.py": _JOB,
        "dags/kappa_dags.py": _DAGS,
        "kappa.toml": _SETTINGS,
    }
    words = {"version": version, "topology": name, "file": stem(name)}
    files = {path: _Draft(draft.lstrip("\n")).substitute(words) for path, draft in drafts.items()}
    # What deploys comes last.
    return {
        **files,
        f"tests/topologies/test_{stem(name)}.py": first.test,
        f"include/topologies/{stem(name)}.py": first.topology,
    }

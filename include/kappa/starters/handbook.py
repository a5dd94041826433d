"""The first page of a team's repository: how to test, run, replay and deploy."""

README = """
# Streams

Topologies of Kappa %version: streams from Kafka to Delta whose history is recomputed when their code changes.

| path | content |
|---|---|
| `include/topologies/` | one file for each topology. `kappa new <name> --shape running-total` writes another one, with its test |
| `tests/` | tests without a broker |
| `dags/kappa_dags.py` | the DAGs of all topologies. Kappa's plugin for Airflow registers itself; `plugins/` is for your own |
| `jobs/run_epoch.py` | a driver in the foreground, for those who submit one themselves. Kappa starts `python -m kappa.driver` instead |
| `kappa.toml` | settings of every command below this folder: brokers, lake. Secrets are variables `KAPPA_*`, never lines of it |
| `docker-compose.yaml`, `Dockerfile` | Airflow and a host for the drivers |
| `.github/workflows/kappa.yaml` | what happens to a change: tests, a plan against production, image, deployment |

Every command that changes something is a dry run without `--execute`.

## Set up, test

Python 3.11 and Java 17.

```sh
python3.11 -m venv .venv && . .venv/bin/activate
pip install --requirement requirements.txt pytest
python -m pytest
kappa doctor
```

`kappa doctor` shows which settings count and where each is from, and tries brokers and lake.

## Bring a topology live

```sh
kappa topics create --all --execute
kappa explain %topology
kappa start %topology --execute
kappa status %topology
```

With Airflow, unpausing the DAG `stream__%topology` does the same as `kappa start`.

## Change its code

1. Change `include/topologies/%file.py`, with a higher `version`, and its test. The live stream goes on with the code that it began with.
2. Look at the plan: `kappa plan %topology`. With a runner for plans, it is a comment of the change.
3. After the merge, trigger the DAG `replay__%topology`: it recomputes the history beside the live epoch, compares, asks, and moves readers. Or type:

```sh
kappa replay %topology --execute
kappa cutover %topology --execute
kappa rollback %topology
```

## Deploy

```sh
cp env.example .env
docker compose up --build --detach
docker compose run --rm kappa status
```

Fill `.env` in first. For plans of changes and deployments by a merge, set the variables and secrets that the head of `.github/workflows/kappa.yaml` lists.

An Airflow that is there already needs the packages of `requirements.txt`, `dags/` in its folder of DAGs, the pools (`python -m kappa_airflow.pools`),
and in all its processes `KAPPA_SETTINGS=<path of this folder>/kappa.toml`.
"""  # noqa: E501  lines of a page

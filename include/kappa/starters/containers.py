"""The image of a team's repository and its services: Airflow, and a host for the drivers."""

DOCKERFILE = """
# One image for Airflow and the drivers: the same Python and the same packages wherever code runs.
FROM python:3.11.13-slim-bookworm

RUN apt-get update \\
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \\
    && rm -rf /var/lib/apt/lists/* \\
    && useradd --create-home --uid 50000 kappa \\
    # Named volumes take the owner of the folder that they cover.
    && mkdir -p /airflow/logs /airflow/auth /home/kappa/.kappa \\
    && chown -R kappa:kappa /airflow /home/kappa

WORKDIR /opt/team
COPY requirements.txt ./
# The two packages more are the clients of Airflow's database.
RUN pip install --no-cache-dir --requirement requirements.txt psycopg2-binary asyncpg

USER kappa
# The jars become part of the image: no container needs the network to start.
RUN python -c "from pathlib import Path; from kappa.spark.jars import ensure_spark; ensure_spark(Path('/home/kappa/.cache/kappa'))" \\
    && python -c "from pathlib import Path; from kappa.spark.s3_jars import ensure_s3; ensure_s3(Path('/home/kappa/.cache/kappa'))"

COPY kappa.toml ./
COPY dags dags
COPY jobs jobs
COPY plugins plugins
COPY include include
"""  # noqa: E501  a command of a shell

IGNORED = """
*
!requirements.txt
!kappa.toml
!dags
!jobs
!plugins
!include
**/__pycache__
"""

VARIABLES = """
# Copy to .env beside docker-compose.yaml and fill in every line that ends with =.
# Name of this stack on its host: containers and volumes have it, and those of another folder must have another one.
COMPOSE_PROJECT_NAME=
# Your brokers, host:port separated by commas, and your lake, s3://bucket/prefix.
KAPPA_BOOTSTRAP_SERVERS=
KAPPA_LAKE=
# How clients log in at the brokers and at the lake's store: files in the folder logins, or another one, which only user
# 50000 may read. Where a merge deploys, it has to be another one: Git empties the folder of the repository.
# LOGINS=/etc/kappa/logins
# KAPPA_KAFKA_CLIENT_FILE=/logins/kafka.properties
# KAPPA_LAKE_CLIENT_FILE=/logins/lake.properties
# A password in a URL: letters and digits only. `openssl rand -hex 24` makes a good one.
POSTGRES_PASSWORD=
# Passwords of Airflow's users: `viewer` reads, `user` triggers, `op` reads masked values too, `admin` does all.
AIRFLOW_VIEWER_PASSWORD=
AIRFLOW_USER_PASSWORD=
AIRFLOW_OP_PASSWORD=
AIRFLOW_ADMIN_PASSWORD=
# openssl rand -hex 32
AIRFLOW_API_SECRET=
# openssl rand -hex 32, another one
AIRFLOW_JWT_SECRET=
# python -c "import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())"
AIRFLOW_FERNET_KEY=
"""

COMPOSE = """
# Airflow on PostgreSQL, and a host of their own for the drivers. Brokers and lake are elsewhere: .env has their addresses.
#
#   cp env.example .env              # and fill it in: nothing here has a default password
#   docker compose up --build --detach
#   docker compose run --rm kappa status
#
# The published port is on loopback: put the proxy that your team logs in through before it.

x-kappa: &kappa
  # IMAGE is the one that a merge has built; without it, that of `--build`.
  image: ${IMAGE:-team-kappa:%version}
  build: .
  init: true
  restart: unless-stopped
  volumes:
    - ${LOGINS:-./logins}:/logins:ro

# What is here goes over kappa.toml.
x-environment: &environment
  KAPPA_SETTINGS: /opt/team/kappa.toml
  KAPPA_BOOTSTRAP_SERVERS: ${KAPPA_BOOTSTRAP_SERVERS:?see env.example}
  KAPPA_LAKE: ${KAPPA_LAKE:?see env.example}
  KAPPA_KAFKA_CLIENT_FILE: ${KAPPA_KAFKA_CLIENT_FILE:-}
  KAPPA_LAKE_CLIENT_FILE: ${KAPPA_LAKE_CLIENT_FILE:-}
  KAPPA_HOME: /home/kappa/.kappa
  KAPPA_CACHE: /home/kappa/.cache/kappa

x-airflow-environment: &airflow-environment
  <<: *environment
  # Airflow's tasks ask for a driver and wait for its heartbeat; the service `drivers` starts it.
  KAPPA_LAUNCHER: elsewhere
  # A backfill is a Spark application of its own in its task: up to three of them beside Airflow itself.
  KAPPA_SPARK_CONF: '{"spark.driver.memory": "1g"}'
  AIRFLOW_HOME: /airflow
  AIRFLOW__CORE__DAGS_FOLDER: /opt/team/dags
  AIRFLOW__CORE__PLUGINS_FOLDER: /opt/team/plugins
  AIRFLOW__CORE__LOAD_EXAMPLES: "False"
  AIRFLOW__CORE__EXECUTOR: LocalExecutor
  AIRFLOW__CORE__PARALLELISM: "8"
  AIRFLOW__CORE__EXECUTION_API_SERVER_URL: http://airflow-api-server:8080/execution/
  AIRFLOW__CORE__FERNET_KEY: ${AIRFLOW_FERNET_KEY:?see env.example}
  AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS: viewer:viewer,user:user,op:op,admin:admin
  AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE: /airflow/auth/passwords.json
  AIRFLOW__DATABASE__SQL_ALCHEMY_CONN: postgresql+psycopg2://airflow:${POSTGRES_PASSWORD:?see env.example}@postgres:5432/airflow
  AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS: "False"
  # Links in notices begin so. Name the address of your proxy.
  AIRFLOW__API__BASE_URL: http://localhost:8080
  AIRFLOW__API__SECRET_KEY: ${AIRFLOW_API_SECRET:?see env.example}
  AIRFLOW__API_AUTH__JWT_SECRET: ${AIRFLOW_JWT_SECRET:?see env.example}
  AIRFLOW__LOGGING__BASE_LOG_FOLDER: /airflow/logs
  AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK: "True"
  AIRFLOW__USAGE_DATA_COLLECTION__ENABLED: "False"

x-airflow: &airflow
  <<: *kappa
  mem_limit: 3g
  environment: *airflow-environment
  volumes:
    - ${LOGINS:-./logins}:/logins:ro
    - airflow-logs:/airflow/logs
    - airflow-auth:/airflow/auth
  depends_on:
    airflow-init:
      condition: service_completed_successfully

services:
  # The epochs' Spark applications live here, detached from Airflow: restarting a part of Airflow stops no stream. After
  # a deployment each epoch goes on with the code that it began with.
  drivers:
    <<: *kappa
    hostname: drivers
    # Each driver's Java takes 3 GB of heap and half a GB beside it, its Python up to 1.5 GB: two drivers and their host.
    mem_limit: 12g
    command: [kappa, drivers]
    environment: *environment
    volumes:
      - ${LOGINS:-./logins}:/logins:ro
      # Logs of the drivers.
      - drivers-home:/home/kappa/.kappa
    # A driver ends at a slice boundary.
    stop_grace_period: 2m
    # A stream that hangs, or has no driver, makes the host unhealthy.
    healthcheck:
      test: [CMD, kappa, drivers, --check]
      interval: 60s
      timeout: 30s
      retries: 3
      start_period: 3m

  # The command line: docker compose run --rm kappa status
  kappa:
    <<: *kappa
    restart: "no"
    profiles: [tools]
    mem_limit: 3g
    entrypoint: [kappa]
    command: [--help]
    environment:
      <<: *environment
      KAPPA_LAUNCHER: elsewhere
      KAPPA_SPARK_CONF: '{"spark.driver.memory": "2g"}'

  postgres:
    image: postgres:17.5-bookworm
    restart: unless-stopped
    mem_limit: 1g
    environment:
      POSTGRES_USER: airflow
      POSTGRES_DB: airflow
      POSTGRES_PASSWORD: ${POSTGRES_PASSWORD:?see env.example}
    volumes:
      - postgres:/var/lib/postgresql/data
    healthcheck:
      test: [CMD, pg_isready, --username, airflow]
      interval: 10s
      timeout: 5s
      retries: 10

  # Runs once and ends: schema, pools, passwords of Airflow's users. Safe to run at every start.
  airflow-init:
    <<: *airflow
    restart: "no"
    command:
      - bash
      - -euc
      - |
        airflow db migrate
        # A task whose pool is missing is never scheduled.
        python -m kappa_airflow.pools
        umask 077
        python - <<'PYTHON'
        import json, os
        with open(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"], "w") as file:
            users = ("viewer", "user", "op", "admin")
            json.dump({name: os.environ[f"AIRFLOW_{name.upper()}_PASSWORD"] for name in users}, file)
        PYTHON
    environment:
      <<: *airflow-environment
      AIRFLOW_VIEWER_PASSWORD: ${AIRFLOW_VIEWER_PASSWORD:?see env.example}
      AIRFLOW_USER_PASSWORD: ${AIRFLOW_USER_PASSWORD:?see env.example}
      AIRFLOW_OP_PASSWORD: ${AIRFLOW_OP_PASSWORD:?see env.example}
      AIRFLOW_ADMIN_PASSWORD: ${AIRFLOW_ADMIN_PASSWORD:?see env.example}
    depends_on:
      postgres:
        condition: service_healthy

  airflow-api-server:
    <<: *airflow
    command: [airflow, api-server, --host, 0.0.0.0, --port, "8080"]
    ports:
      - 127.0.0.1:8080:8080
    healthcheck:
      test: [CMD, python, -c, "import urllib.request as r; r.urlopen('http://localhost:8080/api/v2/version', timeout=5)"]
      interval: 15s
      timeout: 10s
      retries: 5
      start_period: 60s

  airflow-scheduler:
    <<: *airflow
    # Its tasks run in it, and up to three of them are backfills: 1 GB of heap and as much beside it each.
    mem_limit: 8g
    command: [airflow, scheduler, --skip-serve-logs]
    healthcheck:
      test: [CMD, python, -c, "import urllib.request as r; r.urlopen('http://localhost:8974/health', timeout=5)"]
      interval: 15s
      timeout: 10s
      retries: 5
      start_period: 60s

  airflow-dag-processor:
    <<: *airflow
    command: [airflow, dag-processor]
    healthcheck:
      test: [CMD-SHELL, 'airflow jobs check --job-type DagProcessorJob --hostname "$$(hostname)"']
      interval: 60s
      timeout: 30s
      retries: 3
      start_period: 60s

  airflow-triggerer:
    <<: *airflow
    command: [airflow, triggerer, --skip-serve-logs]
    healthcheck:
      test: [CMD-SHELL, 'airflow jobs check --job-type TriggererJob --hostname "$$(hostname)"']
      interval: 60s
      timeout: 30s
      retries: 3
      start_period: 60s

# Without a name of the stack, folders that are called alike would share them.
volumes:
  drivers-home:
    name: ${COMPOSE_PROJECT_NAME:?see env.example}_drivers-home
  postgres:
    name: ${COMPOSE_PROJECT_NAME:?see env.example}_postgres
  airflow-logs:
    name: ${COMPOSE_PROJECT_NAME:?see env.example}_airflow-logs
  airflow-auth:
    name: ${COMPOSE_PROJECT_NAME:?see env.example}_airflow-auth
"""  # noqa: E501  lines of YAML

"""Commands of the stack on this machine, and for test records; the command line finds them by their entry point."""

from __future__ import annotations

import contextlib
import signal
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.cli.options import Json, config, say, say_json
from kappa.config import client_file_of, origins
from kappa.errors import BrokerUnreachableError, ConfigError

if TYPE_CHECKING:
    from kappa_local import supervisor

#: Default port of ``kappa registry``.
REGISTRY_PORT = 8081
#: Names of :data:`kappa_local.generators.generator.SCENARIOS`, whose module imports numpy.
SCENARIOS = (
    "retail",
    "stocks",
    "logs",
    "page-views",
    "captcha",
    "text",
    "inventory",
    "movies",
    "music",
    "customers",
    "order-events",
    "payments",
    "products",
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (up, down, doctor, generate, registry):
        app.command()(command)
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(context_settings=passed_on)(airflow)


def up(
    airflow: Annotated[
        bool, typer.Option("--airflow/--no-airflow", help="Start Airflow and the broker, or only the broker.")
    ] = True,
    secure: Annotated[
        bool, typer.Option("--secure", help="Require a login at the broker by TLS and SCRAM, and grant rights.")
    ] = False,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay until Ctrl-C.")] = False,
    kafka_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the broker; by default as at the last start.")
    ] = None,
    api_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of Airflow's page; by default as at the last start.")
    ] = None,
) -> None:
    """Start the embedded stack: a Kafka broker and Airflow, on this host's loopback. Safe to call twice."""
    from kappa_local import supervisor

    if kafka_port is not None:
        _check_port_of_commands(kafka_port)
    supervisor.up(
        config(),
        with_airflow=airflow,
        is_secure=secure,
        foreground=foreground,
        kafka_port=kafka_port,
        api_port=api_port,
        say=typer.echo,
        on_ready=_show,
    )


def _check_port_of_commands(port: int) -> None:
    """Refuse a port where all other commands would go on to use another broker."""
    settings, origin = config(), origins().get("bootstrap_servers", "")
    if not origin or origin == str(settings.home / "stack.json") or settings.bootstrap_servers.endswith(f":{port}"):
        return
    raise ConfigError(
        f"bootstrap_servers in {origin} is {settings.bootstrap_servers}: all other commands would go there, and not to "
        f"a broker on port {port}. Set it to 127.0.0.1:{port}, then: kappa up --kafka-port {port}",
        port=port,
    )


def down() -> None:
    """Stop the embedded stack and the drivers of its lake on this host. Safe to call twice; nothing is lost."""
    from kappa.driver.processes import host as drivers_module
    from kappa_local import supervisor

    settings = config()
    try:
        ended = drivers_module.end_local(settings)
    finally:  # also where the lake does not answer
        stack = supervisor.down(settings)
    ended += len(stack) + drivers_module.end_local(settings)  # Airflow may have restarted a driver meanwhile
    say(f"Ended {ended} processes." if ended else "Nothing was running.")


def airflow(context: typer.Context) -> None:
    """Run Airflow's own command line on the embedded stack with all further arguments.

    Its exit code is this command's.
    """
    from kappa_local import airflow as airflow_module
    from kappa_local import supervisor

    settings = config()
    port = supervisor.running(settings).api_port or supervisor.DEFAULT_API_PORT
    raise typer.Exit(airflow_module.run(settings, context.args, api_port=port))


def registry(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this host's loopback.")] = REGISTRY_PORT,
) -> None:
    """Serve a schema registry for Avro until Ctrl-C, for demo and tests; ids survive a restart."""
    from kappa_local import registry as registry_module

    with registry_module.server(config().home, port) as server:
        say(f"KAPPA_SCHEMA_REGISTRY=http://{registry_module.HOST}:{server.server_address[1]}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _show(stack: supervisor.Stack) -> None:
    say(f"Kafka    {stack.bootstrap_servers}")
    if file := client_file_of(stack.bootstrap_servers):
        say(f"login    {file}")
    if stack.url:
        say([f"Airflow  {stack.url}", f"user     {stack.user}"])
        say(
            f"password {stack.password} (shown only now; stored in {stack.password_file})"
            if stack.password
            else f"password see {stack.password_file}"
        )
    say(f"logs     {stack.logs}")


def doctor(json: Json = False) -> None:
    """Show the settings and where they are from, use each part once, and show which parts are missing and how to get
    them. Exit code 3 if any is missing.
    """
    from kappa_local import doctor as doctor_module

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its broker, topics and files go with it
    settings = config()
    proofs = []
    for proof in chain([doctor_module.used_settings(settings, origins())], doctor_module.proofs(settings)):
        proofs.append(proof)
        if not json:
            state = "MISSING" if not proof.ok else "WARNING" if proof.remedy else "ok     "
            detail = proof.detail.replace("\n", "\n         ")
            say(f"{state}  {proof.name}: {detail}")
            if proof.remedy:
                say(f"         {proof.remedy}")
    if json:
        say_json(proofs)
    if not all(proof.ok for proof in proofs):
        raise typer.Exit(BrokerUnreachableError.exit_code)


def generate(
    scenario: Annotated[str, typer.Argument(help=f"A scenario: {', '.join(SCENARIOS)}.")],
    records: Annotated[int, typer.Option(help="Number of records.")] = 10_000,
    rate: Annotated[float | None, typer.Option(help="Records per second; as fast as possible by default.")] = None,
    bad_share: Annotated[float, typer.Option(help="Share of records that do not parse, 0 to 1.")] = 0.0,
    out_of_order: Annotated[float, typer.Option(help="Share of records with an earlier time, 0 to 1.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the records.")] = 1,
    partitions: Annotated[int, typer.Option(help="Partitions of the topic when it is created.")] = 3,
    topic: Annotated[str | None, typer.Option(help="Topic instead of the scenario's.")] = None,
    json: Json = False,
) -> None:
    """Produce seeded records, wait until each is delivered, and count them. Continues at the end of the topic."""
    from rich.console import Console
    from rich.progress import Progress

    from kappa_local.generators import generator

    with Progress(console=Console(stderr=True), transient=True, disable=json) as bar:
        task = bar.add_task(scenario, total=records)
        delivery = generator.produce(
            config(),
            scenario,
            records=records,
            rate=rate,
            bad_share=bad_share,
            out_of_order=out_of_order,
            seed=seed,
            partitions=partitions,
            topic=topic,
            progress=lambda count, _: bar.update(task, completed=count),
        )
    if json:
        say_json(delivery)
    else:
        say(
            f"{delivery.records:,} records delivered to {delivery.topic} in {delivery.seconds:.1f} s, {delivery.bad:,} "
            "of them intentionally bad."
        )
        if delivery.repeated:
            say(
                f"The topic grew by {delivery.repeated:,} more: the broker restarted and stored a batch twice (its "
                "records look older than producer.id.expiration.ms), or another process produces to the topic."
            )

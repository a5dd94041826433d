"""Objections to a plan because of the topics that its epoch needs, brought about on a real broker."""

from __future__ import annotations

from dataclasses import replace

from support.findings import Provoked, provokes
from support.sites import Site

VERSIONED = (
    'Append(name="moves", schema="id STRING, amount BIGINT"), '
    'Topic(name="{topic}.moves", of="moves", key="id", on_replay="versioned")'
)


@provokes("topic-unfit")
def _(here: Site) -> Provoked:
    here.create()
    here.produce()
    name = here.paths(1).changelog("balances")
    here.create(name, cleanup_policy="delete")
    return Provoked(
        command="plan NAME",
        numbers={"topic": name, "setting": "cleanup.policy", "value": "delete", "needs": "compact"},
        says="the epoch uses it as a changelog",
        remedy=f"--alter --entity-type topics --entity-name {name} --add-config cleanup.policy=compact",
    )


@provokes("topic-refused")
def _(here: Site) -> Provoked:
    here.create()
    here.produce()
    here.config = replace(here.config, topic_settings={"kappa.*.changelog": {"retention.m": "5"}})
    name = here.paths(1).changelog("balances")
    return Provoked(
        command="plan NAME",
        numbers={"topic": name, "refused": ["retention.m"], "policy": ""},
        says=f"Kafka refuses new topic {name!r}, a changelog: Unknown topic config name: retention.m",
        remedy=f"""{{"retention.m": "5"}}, "{name.replace(".e0001.", ".e*.")}": {{"retention.m": ""}}}}'""",
    )


@provokes("versioned-topic-forgets")
def _(here: Site) -> Provoked:
    here.create()
    here.produce()
    here.deploy(outputs=VERSIONED)
    here.config = replace(here.config, topic_settings={"*.moves.e*": {"retention.ms": "604800000"}})
    return Provoked(
        command="plan NAME",
        numbers={"topic": f"{here.topic}.moves.e0001", "limit": "retention.ms=604800000"},
        says="keeps records for a limited time",
        remedy="retention.ms=-1",
    )


@provokes("versioned-topic-adopted")
def _(here: Site) -> Provoked:
    here.create()
    here.produce()
    here.deploy(outputs=VERSIONED)
    name = f"{here.topic}.moves.e0001"
    here.create(name)
    return Provoked(
        command="plan NAME",
        numbers={"adopted": [name]},
        says=f"Epoch 1 would take {name}, which exist already and are empty",
        remedy="No action needed if they were made for the epoch",
    )

"""The topics that the next epochs of a topology need, ahead of their plans: for those who may create topics."""

from __future__ import annotations

from collections.abc import Iterable

from kappa import clock
from kappa.config import Config
from kappa.control.plans.planning import surveyed_facts
from kappa.kafka import topic_settings
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.record import code as code_store
from kappa.record.epochs import epochs_of
from kappa.replay import findings
from kappa.replay.epoch_topics import EpochTopic
from kappa.replay.facts import Facts
from kappa.replay.findings import Finding
from kappa.replay.request import ReplayRequest
from kappa.replay.rules.needed import needed_findings
from kappa.replay.span import unreadable
from kappa.replay.starts import ToEarliest
from kappa.topology import Topology, registry


def missing_topics(config: Config, topology: str, epochs: int = 1) -> tuple[EpochTopic, ...]:
    """The topics that the next epochs of a topology would make, each once; without those that are there.

    An epoch that is being built comes first: it lacks topics if it was planned before anybody made them.

    Args:
        config: where everything is; its topic settings go over those of the topics.
        topology: the topology.
        epochs: how many epochs after all those on record.

    Raises:
        UnknownTopologyError: there is no such topology.
        RefusedError: a source is missing: its partitions count.
        BrokerUnreachableError: Kafka does not answer.
    """
    declared = registry.load(config.topologies, topology)
    with _broker(config) as broker:
        facts = _facts(config, broker, topology)
        assert facts.topology is not None
        findings.check(unreadable(facts.topology, facts), f"The list of topics for {topology!r}")
        listed = set(broker.topics())
        topics: dict[str, EpochTopic] = {}
        following = range(facts.next_epoch, facts.next_epoch + epochs)
        of_epochs = [*_of_candidate(config, topology), *((number, declared) for number in following)]
        for number, of in of_epochs:
            paths = EpochPaths(lake=config.lake, topology=topology, epoch=number)
            for topic in topic_settings.of_epoch(of, paths, facts.log.high.most_partitions):
                topics.setdefault(topic.name, broker.adapted(topic))
    return tuple(topic for topic in topics.values() if topic.name not in listed)


def objections(config: Config, topologies: Iterable[str]) -> dict[str, list[Finding] | None]:
    """What the brokers, or the topics that are there, have against the next epoch of topologies, by their names.

    Nothing is created. None for a topology whose sources are not all there: its topics depend on them.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    with _broker(config) as broker:
        surveyed = {name: _facts(config, broker, name) for name in topologies}
    return {
        name: needed_findings(facts.topology, facts) if facts.topology is not None and facts.needed else None
        for name, facts in surveyed.items()
    }


def _of_candidate(config: Config, topology: str) -> list[tuple[int, Topology]]:
    """The epoch that is being built, with its own code; empty where there is none."""
    candidate = epochs_of(config.lake).record(topology).candidate
    if candidate is None:
        return []
    folder = code_store.extract(config.lake, candidate.code, config.home) / "topologies"
    return [(candidate.epoch, registry.load_stored(folder, topology))]


def _broker(config: Config) -> Broker:
    return Broker(config.bootstrap_servers, topic_settings=config.topic_settings)


def _facts(config: Config, broker: Broker, topology: str) -> Facts:
    request = ReplayRequest(
        topology=topology, start=ToEarliest(), reason="", actor="", slice_records=config.slice_records
    )
    epochs = epochs_of(config.lake)
    return surveyed_facts(config, broker, epochs, epochs.record(topology), request, now=clock.now())

"""The epoch's consumer group, by which Kafka's own tools show how far the epoch is."""

from __future__ import annotations

from kappa.driver.driven_epoch import DrivenEpoch
from kappa.errors import ConflictError, RefusedError
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import tool_options
from kappa.offsets.vector import Offsets


def set_offsets(epoch: DrivenEpoch, broker: Broker, position: Offsets) -> None:
    """Move the epoch's group.

    Raises:
        ConflictError: a consumer is a member of the group; the message names it.
    """
    group = epoch.paths.name
    try:
        broker.set_group_offsets(group, position)
    except ConflictError as error:
        members = ", ".join(broker.group_member_names(group) or ()) or "a member that has left meanwhile"
        raise ConflictError(
            f"Group {group!r} cannot be set to {position.to_json()}: it has members that are not Kappa's: "
            f"{members}. The epoch goes on once they are stopped. To see them: kafka-consumer-groups.sh "
            f"{tool_options(epoch.config.bootstrap_servers)} --describe --members --group {group}",
            group=group,
            members=members,
        ) from error


def check(epoch: DrivenEpoch, broker: Broker) -> None:
    """Raise RefusedError unless the rewound group and the plan agree, before the first slice.

    Kafka forgets the offsets of a group without members after days (``offsets.retention.minutes``).
    """
    position = broker.group_position(epoch.paths.name, epoch.plan.start)
    if len(position) and position != epoch.plan.start:
        raise RefusedError(
            f"Group {epoch.paths.name!r} is at {position.to_json()}, the plan starts at "
            f"{epoch.plan.start.to_json()}: another process moved it. Abort this replay and plan again.",
            findings=(),
            group=position.to_json(),
            plan=epoch.plan.start.to_json(),
        )

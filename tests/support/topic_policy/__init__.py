"""A broker whose policy refuses topics that Kappa makes by itself: unlimited retention, small segments, large messages,
more than eight partitions, some names.

Topics whose names end with ``.source`` are excepted: records of tests are old.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kappa.spark.jars import ensure_kafka, find_java
from kappa_local import kafka

POLICY = "StrictPolicy"
_SOURCE = Path(__file__).with_name(f"{POLICY}.java")
#: Settings of new topics that the policy lets pass.
ACCEPTED = {"retention.ms": "", "kappa.*": {"segment.ms": "", "max.message.bytes": "1048588"}}


def started(folder: Path, *, is_secure: bool = False) -> kafka.KafkaProcess:
    """A broker with the policy, compiled for it."""
    classes, jars = folder / "classes", ensure_kafka(kafka.DEFAULT_CACHE)
    compiler = find_java().resolve().parent / "javac"
    subprocess.run([compiler, "-cp", f"{jars}/*", "-d", classes, _SOURCE], check=True)
    names = ("create.topic.policy.class.name", "alter.config.policy.class.name")
    overrides = [word for name in names for word in ("--override", f"{name}={POLICY}")]
    plain = kafka.command

    def command(*arguments: object, **how: object) -> list[str]:
        words = plain(*arguments, **how)  # type: ignore[arg-type]  # the same as it takes
        at = words.index("-cp") + 1
        return [*words[:at], f"{words[at]}:{classes}", *words[at + 1 :], *overrides]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "command", command)
        return kafka.KafkaProcess.start(folder / "kafka", is_secure=is_secure)

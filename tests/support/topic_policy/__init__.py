"""A broker whose policy refuses topics that Kappa makes by itself: unlimited retention, small segments, large messages,
more than eight partitions, some names.

Topics whose names end with ``.source`` are excepted: records of tests are old.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from kappa.spark.jars import ensure_kafka, find_java
from kappa_local import kafka
from support.brokers import started_with

POLICY = "StrictPolicy"
_SOURCE = Path(__file__).with_name(f"{POLICY}.java")
#: Settings of new topics that the policy lets pass.
ACCEPTED = {"retention.ms": "", "kappa.*": {"segment.ms": "", "max.message.bytes": "1048588"}}


def started(folder: Path, *, is_secure: bool = False, **limits: str) -> kafka.KafkaProcess:
    """A broker with the policy, compiled for it, and with these settings, ``_`` for a dot."""
    classes, jars = folder / "classes", ensure_kafka(kafka.DEFAULT_CACHE)
    compiler = find_java().resolve().parent / "javac"
    subprocess.run([compiler, "-cp", f"{jars}/*", "-d", classes, _SOURCE], check=True)
    names = ("create.topic.policy.class.name", "alter.config.policy.class.name")
    own = dict.fromkeys(names, POLICY) | {name.replace("_", "."): value for name, value in limits.items()}
    return started_with(folder / "kafka", lambda _: own, classes=classes, is_secure=is_secure)

"""For tests of topologies: run one without Kafka, cut its log in many ways, kill its driver where it hurts.

Runs a topology without Kafka, Delta or a driver process: records in, rows out, tables kept in between.

    driver = TopologyDriver(loyalty, local_session())
    driver.pipe([Input(topic="pos", value={"InvoiceNumber": "1", "CustomerType": "PRIME", ...})])
    assert driver.rows("rewards") == [{"CustomerCardNo": "c1", "TotalLoyaltyPoints": Decimal("2.0000")}]

Parsing, order, the step and the checks of its effects are those of a stream (:mod:`kappa.slices.protocol`), so that
what passes here does the same there. Not here: Kafka's transactions, Delta's types at rest, crashes;
:class:`CrashAfter` is for those, with a real driver. :func:`assert_slice_invariant` checks a topology against cuts.
"""

from kappa.faults import CrashAfter
from kappa.spark.session import local_session
from kappa.testing.slice_invariance import assert_slice_invariant
from kappa.testing.topology_driver import BEGIN, MASK_KEY, Input, TopologyDriver

__all__ = ["BEGIN", "MASK_KEY", "CrashAfter", "Input", "TopologyDriver", "assert_slice_invariant", "local_session"]

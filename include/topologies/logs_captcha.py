"""Browsers that act five times without a captcha must solve one; passing it begins a new count."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import lookup, running_total

logs = Source(topic="logs", schema="browser STRING NOT NULL, action STRING")
captchas = Source(topic="captcha", schema="browser STRING NOT NULL, passed BOOLEAN NOT NULL")
passed = running_total(captchas, key="browser", total="passes", table="passes")
acted = lookup(logs, passed, key="browser")
counted = running_total(acted.rows, key="browser", total="actions", since="passes", table="actions")


def ask(slice: Slice) -> Effects:
    """Count actions since the browser's last captcha, from a global table, which every executor has."""
    passed(slice, slice["captcha"].where("passed"))
    acts = acted(slice, slice["logs"].where("browser IS NOT NULL")).rows
    counts = counted(slice, acts.selectExpr("* EXCEPT (passes)", "COALESCE(passes, 0) AS passes"))
    return {"asked": counts.rows.where("actions >= 5")}


captcha = Topology(
    name="logs.captcha",
    version="2",
    sources=[logs, captchas],
    operators=[passed, acted, counted],
    outputs=[
        Append(name="asked", of=counted.rows, schema="browser STRING NOT NULL, actions BIGINT NOT NULL"),
        Topic(name="ask-captcha", of="asked", key="browser"),
    ],
    step=ask,
)

"""Browsers that act five times and never passed a captcha must solve one."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import newest_table_join, running_total

logs = Source(topic="logs", schema="browser STRING NOT NULL, action STRING")
captchas = Source(topic="captcha", schema="browser STRING NOT NULL, passed BOOLEAN NOT NULL")
acted = newest_table_join(logs, captchas, key="browser", how="left", table="captchas")
counted = running_total(acted.rows, key="browser", total="actions", table="actions")


def ask(slice: Slice) -> Effects:
    """Each action with the captcha that its browser passed earlier, if any."""
    acted(slice, None, slice["captcha"].where("passed"))
    return {"asked": counted(slice).rows.where("actions >= 5 AND passed IS NULL")}


captcha = Topology(
    name="logs.captcha",
    version="1",
    sources=[logs, captchas],
    operators=[acted, counted],
    outputs=[
        Append(name="asked", of=counted.rows, schema="browser STRING NOT NULL, actions BIGINT NOT NULL"),
        Topic(name="ask-captcha", of="asked", key="browser"),
    ],
    step=ask,
)

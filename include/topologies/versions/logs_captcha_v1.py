"""Browsers that act five times and never passed a captcha are asked for one."""

from kappa import Append, Effects, Slice, Source, Table, Topic, Topology
from kappa.operators import newest, newest_table_join, running_total

ACTIONS = "browser STRING NOT NULL, actions BIGINT NOT NULL"

logs = Source(topic="logs", schema="browser STRING NOT NULL, action STRING")
captchas = Source(topic="captcha", schema="browser STRING NOT NULL, passed BOOLEAN NOT NULL")
with_captcha = newest_table_join(logs, captchas, key="browser", how="left", table="captchas")


def ask(slice: Slice) -> Effects:
    """Each action with the captcha that its browser passed before it, if it did."""
    acted = with_captcha(slice, None, slice["captcha"].where("passed")).rows
    counted = running_total(
        acted.selectExpr("*", "1 AS one"), key="browser", amount="one", total="actions", before=slice.table("actions")
    )
    return {"actions": newest(counted, key="browser"), "asked": counted.where("actions >= 5 AND passed IS NULL")}


captcha = Topology(
    name="logs.captcha",
    version="1",
    sources=[logs, captchas],
    operators=[with_captcha],
    tables=[Table(name="actions", key=["browser"], schema=ACTIONS, cuts="time")],
    outputs=[Append(name="asked", schema=ACTIONS, cuts="time"), Topic(name="ask-captcha", of="asked", key="browser")],
    step=ask,
)

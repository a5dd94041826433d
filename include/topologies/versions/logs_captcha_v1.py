"""Browsers that act five times and never passed a captcha are asked for one."""

from kappa import Append, Effects, Slice, Source, Table, Topic, Topology
from kappa.operators import newest, newest_table_join, running_total

ACTION = "browser STRING NOT NULL, action STRING"
CAPTCHA = "browser STRING NOT NULL, passed BOOLEAN NOT NULL"
ACTIONS = "browser STRING NOT NULL, actions BIGINT NOT NULL"

with_captcha = newest_table_join(left=ACTION, table=CAPTCHA, key="browser", how="left")


def ask(slice: Slice) -> Effects:
    """Each action with the captcha that its browser passed before it, if it did."""
    acted = with_captcha(slice["logs"], slice["captcha"].where("passed"), before=slice.table("captchas"))
    counted = running_total(
        acted.rows.selectExpr("*", "1 AS one"),
        key="browser",
        amount="one",
        total="actions",
        before=slice.table("actions"),
    )
    return {
        "captchas": acted.changes,
        "actions": newest(counted, key="browser"),
        "asked": counted.where("actions >= 5 AND passed IS NULL"),
    }


captcha = Topology(
    name="logs.captcha",
    version="1",
    sources=[Source(topic="logs", schema=ACTION), Source(topic="captcha", schema=CAPTCHA)],
    tables=[with_captcha.table("captchas"), Table(name="actions", key=["browser"], schema=ACTIONS, cuts="time")],
    outputs=[Append(name="asked", schema=ACTIONS, cuts="time"), Topic(name="ask-captcha", of="asked", key="browser")],
    step=ask,
)

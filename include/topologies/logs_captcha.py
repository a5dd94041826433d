"""Browsers that act five times without a captcha are asked for one; passing it begins a new count."""

from kappa import Append, Effects, Slice, Source, Table, Topic, Topology
from kappa.operators import lookup, newest, running_total

ACTION = "browser STRING NOT NULL, action STRING"
CAPTCHA = "browser STRING NOT NULL, passed BOOLEAN NOT NULL"
PASSES = "browser STRING NOT NULL, passes BIGINT NOT NULL"
ACTIONS = f"{PASSES}, actions BIGINT NOT NULL"
ASKED = "browser STRING NOT NULL, actions BIGINT NOT NULL"


def ask(slice: Slice) -> Effects:
    """Each action counts since the browser's last captcha, which every executor has: the table is a global one."""
    captchas = slice["captcha"].where("passed").selectExpr("*", "1 AS one")
    passed = running_total(captchas, key="browser", amount="one", total="passes", before=slice.table("passes"))
    acted = lookup(slice["logs"].where("browser IS NOT NULL"), slice.table("passes"), on="browser", changes=passed)
    counted = running_total(
        acted.selectExpr("* EXCEPT (passes)", "COALESCE(passes, 0) AS passes", "1 AS one"),
        key=["browser", "passes"],
        amount="one",
        total="actions",
        before=slice.table("actions"),
    )
    return {
        "passes": newest(passed, key="browser"),
        "actions": newest(counted, key="browser"),
        "asked": counted.where("actions >= 5"),
    }


captcha = Topology(
    name="logs.captcha",
    version="2",
    sources=[Source(topic="logs", schema=ACTION), Source(topic="captcha", schema=CAPTCHA)],
    tables=[
        Table(name="passes", key=["browser"], schema=PASSES),
        Table(name="actions", key=["browser"], schema=ACTIONS, cuts="time"),
    ],
    outputs=[Append(name="asked", schema=ASKED, cuts="time"), Topic(name="ask-captcha", of="asked", key="browser")],
    step=ask,
)

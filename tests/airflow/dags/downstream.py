"""A DAG of the tests: it runs after each move of a table and says which."""

from airflow.sdk import DAG, BaseOperator

from kappa_airflow.announcing.announcements import served

BALANCES = served("demo.announced", "balances")


class LogMoves(BaseOperator):
    """Logs the moves that its run is about."""

    def execute(self, context):
        """Log them."""
        for event in context["triggering_asset_events"][BALANCES]:
            self.log.info("told %s %s at %s", event.extra["id"], event.extra["move"], event.extra["offsets"])


with DAG(dag_id="downstream", schedule=[BALANCES], is_paused_upon_creation=False):
    LogMoves(task_id="log_moves")

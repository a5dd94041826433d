"""All DAGs of Kappa: one for each topology and verb, the joint ones, `announcements` and `housekeeping`.

They are listed in docs/airflow.md. What each does is its documentation in Airflow.
"""

from kappa_airflow import dags

dags()

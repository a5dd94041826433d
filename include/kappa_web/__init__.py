"""Pages and queries over HTTP: one application, mounted by Airflow's plugin and served by ``kappa ui``."""

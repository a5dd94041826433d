"""The rights of a user of Airflow on the pages and in queries. Imported by the web server only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from fastapi import HTTPException, Request

from kappa_web.access import LoginNeeded


@dataclass(frozen=True)
class Rights:
    """The rights of a user of Airflow, by its auth manager.

    Attributes:
        user: Airflow's user.
    """

    user: Any

    has_forms = True

    @property
    def name(self) -> str:
        """The user's name."""
        return str(self.user.get_name())

    def may_read(self, topology: str) -> bool:
        """Whether the user may read the topology's replay DAG."""
        details = DagDetails(id=f"replay__{topology}")
        return bool(get_auth_manager().is_authorized_dag(method="GET", details=details, user=self.user))

    def may_unmask(self, topology: str) -> bool:
        """Whether the user may read connections as well: among Airflow's own roles, Op may."""
        may_read_secrets = bool(get_auth_manager().is_authorized_connection(method="GET", user=self.user))
        return may_read_secrets and self.may_read(topology)


async def access(request: Request) -> Rights:
    """The rights of the caller of a request: the dependency of each route.

    Raises:
        LoginNeeded: Airflow knows no user of the request, with the address of its login.
    """
    try:
        return Rights(await get_user(request, None, await bearer_scheme(request)))
    except HTTPException as error:
        if error.status_code != 401:
            raise
        root = str(request.scope.get("app_root_path", "")).rstrip("/")
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        raise LoginNeeded(f"{root}/api/v2/auth/login?{urlencode({'next': here})}") from error

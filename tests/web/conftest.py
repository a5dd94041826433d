"""Sites with a live epoch, asked over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.web_site import Rights, Site, served


def _after_two_slices(base: Path) -> Site:
    site = Site(base)
    site.epoch.slice({("a", 0): 3, ("a", 1): 4, ("b", 0): 5})
    site.epoch.slice({("b", 1): 6, ("c'", 0): 7})
    return site


@pytest.fixture(scope="session")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The same for tests of several modules; :func:`site` gives it anew."""
    return _after_two_slices(tmp_path_factory.mktemp("site"))


@pytest.fixture
def site(shared_site: Site) -> Site:
    """Sums of two numbers after two slices, of which tests only read."""
    shared_site.rights = Rights()
    return shared_site


@pytest.fixture
def own_site(tmp_path: Path) -> Site:
    """The same, of which a test may add slices and take things away."""
    return _after_two_slices(tmp_path)


@pytest.fixture(scope="module")
def url(shared_site: Site) -> Iterator[str]:
    """Address of a server of the lake."""
    with served(shared_site) as address:
        yield address

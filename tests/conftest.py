"""What test files share that is expensive to make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from warm_servers import Mother, warm


@pytest.fixture(scope="session")
def mother() -> Iterator[Mother]:
    made = Mother()
    yield made
    made.close()


@pytest.fixture(scope="module")
def warm_servers(mother: Mother) -> Iterator[None]:
    """For files that measure in this process: see ``warm_servers.py``."""
    with warm(mother):
        yield

"""What surgery's tests share: a trace of a few ids, through bundled models and through tests/tiny.py's."""

from __future__ import annotations

from typing import Any

import pytest

from tests import tiny
from tests.surgery.tools import IDS, open_model


@pytest.fixture(scope="package")
def opened(tmp_path_factory):
    """name -> (model, trace of IDS), of a bundled model or of tests/tiny.py."""
    made = {}

    def get(name: str, **changes):
        key = (name, *sorted(changes.items()))
        if key not in made:
            where: Any = name
            if not name.startswith("tinput/"):
                where = tmp_path_factory.mktemp("model")
                tiny.make(name, where, **changes)
            model = open_model(where)
            made[key] = (model, model.trace(ids=IDS))
        return made[key]

    return get

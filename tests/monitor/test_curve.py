"""The learning curve as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shoal.engine.episodes import Episodes
from shoal.monitor import curve
from shoal.store.metrics_file import CurvePoint


def test_a_team_may_look_like_a_formula(tmp_path: Path) -> None:
    team = r"$\frac{x$"
    points = [CurvePoint(0, 0.0, Episodes({team: np.zeros((2, 1))}, np.ones(2)))]
    curve.draw(tmp_path / "curve.png", team, points, [], None)
    assert (tmp_path / "curve.png").is_file()

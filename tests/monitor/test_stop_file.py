"""A file in its folder stops a run."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

from shoal.monitor.stop_file import NAME, StopFile, request


def asked(run: Path, callback: StopFile) -> bool:
    stops = []
    callback.on_iteration(SimpleNamespace(path=run, stop=lambda: stops.append(1)), {})
    return bool(stops)


def test_a_run_stops_when_the_file_appears_and_only_once(tmp_path):
    callback = StopFile()
    assert not asked(tmp_path, callback)
    request(tmp_path)
    assert asked(tmp_path, callback)
    assert not (tmp_path / NAME).exists() and not asked(tmp_path, callback)


def test_a_request_from_before_the_run_does_not_count(tmp_path):
    request(tmp_path)
    os.utime(tmp_path / NAME, (time.time() - 60,) * 2)
    assert not asked(tmp_path, StopFile())
    assert not (tmp_path / NAME).exists()

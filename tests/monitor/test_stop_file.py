"""A file in its folder stops a run."""

from types import SimpleNamespace

from shoal.monitor.stop_file import StopFile, request
from shoal.store import folder


def asked(run):
    stops = []
    StopFile().on_iteration(SimpleNamespace(path=run, stop=lambda: stops.append(1)), {})
    return bool(stops)


def test_a_run_stops_when_the_file_appears_and_only_once(tmp_path):
    assert not asked(tmp_path)
    request(tmp_path)
    assert asked(tmp_path)
    assert not asked(tmp_path)


def test_a_request_to_an_earlier_process_does_not_count(tmp_path):
    request(tmp_path)
    with folder.locked(tmp_path):
        assert not asked(tmp_path)

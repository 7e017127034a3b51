"""The result of a run that ended normally, put together for its summary."""

from __future__ import annotations

from ..engine.episodes import Episodes
from ..monitor.callbacks import LiveRun
from ..store.metrics_file import History
from ..store.policy_store import BestEvaluation
from ..store.summary import Result, stopped_by
from .signals import Stop


def result_of(
    run: LiveRun,
    history: History,
    best: BestEvaluation | None,
    stop: Stop,
    random: Episodes | None,
    final: Episodes | None,
) -> Result:
    """The result; `random` and `final` are None where they were not played."""
    last = history.points[-1].played
    return Result(
        run.path,
        scores=last.score(),
        before=history.before,
        random=random.score() if random else {},
        steps=run.steps,
        seconds=run.seconds,
        stopped=int(stop.signal),
        best=best,
        reason=stopped_by(int(stop.signal), stop.from_outside),
        from_run=run.config.settings.from_run,
        metrics=last.means(),
        random_metrics=random.means() if random else {},
        final=final.score() if final else {},
        final_metrics=final.means() if final else {},
    )

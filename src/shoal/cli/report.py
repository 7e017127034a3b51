"""`shoal report`: tables, curves and a page on any finished runs."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ..algorithms import ALIASES
from ..config.flags import parse
from ..errors import ShoalError
from ..report import html as page
from ..report import tables
from ..report.results import of_folders
from ..report.study import RunScores, Study
from .words import Trusting, leading

TITLE = (
    "Tables, curves and a report of all runs in some folders, such as runs/, a campaign's"
    " folder or that of shoal train"
    " --seeds: shoal report runs/ --algorithms 'mappo,ippo*' --envs 'mpe/*' --out reports/first"
)


@dataclass(frozen=True)
class Report:
    """What the report is of, and where it goes. Patterns are separated by commas, with * for
    anything."""

    out: str = ""
    """Folder that it is written to; empty takes the one the runs are in."""
    only: str = ""
    """Patterns of the runs to take, by the name of their folder or the one above, of algorithm or
    environment."""
    algorithms: str = ""
    """Patterns of the algorithms to take."""
    envs: str = ""
    """Patterns of the environments to take."""
    metric: str = ""
    """Metric of the environments that is the score, such as won; empty takes the return of one
    agent."""

    def wants(self, run: RunScores) -> bool:
        """Whether a run is to be in the report."""
        places = (run.path.name, run.path.absolute().parent.name)
        chosen = _matches(self.algorithms, run.algorithm) and _matches(self.envs, run.env)
        return chosen and _matches(self.only, *places, run.algorithm, run.env)


def _matches(patterns: str, *names: str) -> bool:
    """Whether any name matches any pattern, or there is no pattern."""
    words = [ALIASES.get(word.strip(), word.strip()) for word in patterns.split(",")]
    return not patterns or any(fnmatchcase(name, word) for name in names for word in words)


def report(args: list[str], trust: Trusting) -> int:
    """Report on any finished runs."""
    names, words = leading(args)
    folders = [Path(name) for name in names]
    options = parse(Report, Report(), words, "shoal report <folder> …", TITLE)
    if not folders:
        raise ShoalError("say which folders the runs are in: shoal report <folder> …")
    for folder in folders:
        if not folder.is_dir():
            raise ShoalError(f"there is no folder {folder}: say a folder that runs are in")
    if len(folders) > 1 and not options.out:
        raise ShoalError("say where a report on several folders goes: --out <folder>")
    study = of_folders(folders, options.wants, options.metric)
    return publish(study, Path(options.out) if options.out else folders[0])


def publish(study: Study, folder: Path) -> int:
    """Write the whole report into the folder and print the table; return 1 if a run failed."""

    if len(study.failures) == len(study.runs):
        _refuse(study)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tables.write(study, folder)
        page.write(study, folder)
    except OSError as error:
        why = error.strerror or error
        raise ShoalError(
            f"the report cannot be written to {folder} ({why}): choose another --out"
        ) from None
    print(tables.markdown(study), end="")
    print(
        f"report: {folder / page.REPORT}   tables: {folder / tables.TABLE}, {folder / tables.TEXT}"
    )
    return 1 if study.failures else 0


def _refuse(study: Study) -> None:
    """Explain why there is nothing to report."""
    for run in study.runs:
        raise ShoalError(
            f"no run has finished: {run.algorithm} on {run.env}, seed {run.seed}: {run.failure}"
        )
    also = "".join(f"; {path} cannot be: {why}" for path, why in study.left[:1])
    raise ShoalError(
        f"no run is left to report: let --only, --algorithms and --envs leave one over{also}"
    )

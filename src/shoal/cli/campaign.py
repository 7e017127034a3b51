"""`shoal campaign`: algorithms × environments × seeds, then a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..config import campaign as planning
from ..config.campaign import Plan
from ..config.campaign_words import listed, read_toml
from ..config.flags import flags, parse
from ..config.settings import LOCAL, check_cluster
from ..config.trust import EVERYTHING, NOTHING, Trust, needed
from ..devices import setup, usable
from ..errors import ShoalError
from ..report.results import of_campaign
from ..store import folder as runs
from ..store.places import local, word_of
from ..store.remote import share
from ..sweep import progress, scheduler
from .report import publish
from .words import Trusting

CAMPAIGN = "shoal campaign <algorithms> <envs> --out <folder>"
TITLE = (
    "Train every algorithm on every environment with every seed, and write a report: shoal"
    " campaign mappo,qmix"
    " mpe/simple_spread,mpe/simple_speaker_listener --seeds 5 --steps 2e6 --out"
    " campaigns/first. All other options are"
    " those of shoal train, and go to every run. The same command, or shoal campaign <folder>,"
    " goes on with a campaign"
    " that was interrupted; shoal campaign <file>.toml reads one from a file. Environments of"
    " somebody's own, which a"
    " folder or a file names, are only run with --trust"
)


@dataclass(frozen=True)
class Campaign:
    """The campaign itself."""

    seeds: str = "5"
    """How many seeds, counted from 0, or which, as in 0,7,12."""
    out: str = ""
    """The campaign's folder."""
    at_once: int = 0
    """Runs side by side; 0 is one on each core."""
    cluster: str = LOCAL
    """Where the runs are trained: local is this machine, auto the Ray cluster that it is part of;
    or a cluster's address, as in ray://host:10001."""
    metric: str = ""
    """Metric of the environments that the report takes as the score, such as won; empty takes the
    return of one agent."""

    def __post_init__(self) -> None:
        if self.at_once < 0:
            raise ShoalError(f"at_once must not be negative, not {self.at_once!r}")
        check_cluster(self.cluster)


def campaign(args: list[str], trust: Trusting) -> int:
    """Train what is not finished yet, then report."""
    setup()
    settings, names, options = _own(args)
    folder, plan = _planned(settings, names, options, trust.files)
    plan = planning.checked(plan, settings.metric)
    planning.save(plan, folder)
    jobs = plan.jobs(folder)
    done = sum(runs.finished(job.path) for job in jobs)
    print(f"campaign of {len(jobs)} runs in {folder}, {done} of them finished already", flush=True)
    share(folder)
    with runs.locked(folder):
        outcomes = scheduler.work(jobs, _at_once(settings, plan), cluster=settings.cluster)
    if any(outcome.state == progress.STOPPED for outcome in outcomes.values()):
        flag = max(needed(pair.config) for pair in plan.pairs)
        print(f"stopped: `shoal campaign {word_of(folder)}{flag}` goes on", flush=True)
        return 130
    code = publish(of_campaign(folder, plan, settings.metric), folder)
    share(folder)
    return code


def _at_once(settings: Campaign, plan: Plan) -> int:
    """Number of runs at once: on this machine, each needs a core for each of its devices."""
    if settings.at_once or settings.cluster != LOCAL:
        return settings.at_once
    devices = max(pair.config["settings"]["devices"] for pair in plan.pairs)
    return max(len(usable()) // max(devices, 1), 1)


def _own(args: list[str]) -> tuple[Campaign, list[str], list[str]]:
    """Split into the campaign's own options, the names before all options, and the runs'
    options."""
    known = dict(flags(Campaign, Campaign()))
    own = []
    rest = []
    words = list(args)
    names = []
    while words and not words[0].startswith("-"):
        names.append(words.pop(0))
    while words:
        word = words.pop(0)
        mine = word.partition("=")[0].replace("_", "-").lower() in known or (
            word in ("-h", "--help") and not rest
        )
        (own if mine else rest).append(word)
        if mine and "=" not in word and words and not words[0].startswith("--"):
            own.append(words.pop(0))
    return parse(Campaign, Campaign(), own, CAMPAIGN, TITLE), names, rest


def _planned(
    settings: Campaign, names: list[str], options: list[str], trust: Trust = NOTHING
) -> tuple[Path, Plan]:
    """The campaign's folder, and its runs: those asked for and those in the folder."""
    if len(names) > 2:
        raise ShoalError(
            f"{names[2]!r} is one word too many: several algorithms or environments are a list"
            f" with commas"
        )
    if not names:
        raise ShoalError(
            f"say what to train on what: {CAMPAIGN}, or shoal campaign <folder or .toml file>"
        )
    if len(names) == 1 and (Path(names[0]) / planning.FILE).exists():
        if options or settings != replace(
            Campaign(), at_once=settings.at_once, metric=settings.metric, cluster=settings.cluster
        ):
            raise ShoalError(
                f"{names[0]} says all itself: shoal campaign {names[0]}, and"
                f" nothing else but --at-once, --cluster and --metric"
            )
        return Path(names[0]), planning.load(Path(names[0]), trust)
    if len(names) == 1 and not names[0].endswith(".toml"):
        raise ShoalError(
            f"{names[0]} is neither a campaign's folder nor a .toml file: say {CAMPAIGN}"
        )
    if len(names) == 1:
        folder, plan = _from_file(settings, Path(names[0]), options, trust)
    else:
        folder, plan = _from_words(settings, names, options, trust)
    if (folder / planning.FILE).exists():
        return folder, plan.merged(
            planning.load(folder, trust, {pair.key for pair in plan.pairs}), folder
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ShoalError(f"{folder} exists already and is no campaign: choose another --out")
    return folder, plan


def _from_words(
    settings: Campaign, names: list[str], options: list[str], trust: Trust
) -> tuple[Path, Plan]:
    if not settings.out:
        raise ShoalError("say where the campaign goes: --out campaigns/first")
    algorithms, envs = map(listed, names)
    return local(settings.out), planning.made(
        algorithms, envs, planning.numbers(settings.seeds), options, EVERYTHING, trust
    )


def _from_file(
    settings: Campaign, path: Path, options: list[str], trust: Trust
) -> tuple[Path, Plan]:
    """Plan the campaign in a file; options on the command line override those of the file."""
    content = read_toml(path)
    out = settings.out or content.get("out") or str(path.with_suffix(""))
    seeds = (
        content.get("seeds", settings.seeds) if settings.seeds == Campaign.seeds else settings.seeds
    )
    words = [*content["options"], *options]
    plan = planning.made(
        content["algorithms"], content["envs"], planning.numbers(seeds), words, trust, trust
    )
    return local(out), replace(plan, scales=content.get("scales", {}))

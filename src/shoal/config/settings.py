"""Settings of a run, whatever it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import plugins
from ..clusters import AUTO, LOCAL
from ..errors import ShoalError, did_you_mean

SHORT = 20_000  # steps of a run, up to which one process steps its games


MOST_SEEDS = 1000


TRACKERS = ("wandb", "mlflow")  # services that a run may be logged to


@dataclass(frozen=True)
class Settings:
    """The run itself."""

    steps: int = 1_000_000
    """Environment steps to train for, up to the end of a window; a step moves all agents of one
    game once."""
    seed: int = 0
    """Decides everything random: equal seeds repeat a run exactly."""
    seeds: int | str = 1
    """Runs to train side by side, each on one device unless more are asked for: how many, with this
    seed and those after it, or which, as in 3,7."""
    cluster: str = LOCAL
    """Where several seeds are trained, or the games of a run on the host are played: local is this
    machine, auto the Ray cluster that it is part of; or its address, as in ray://host:10001."""
    from_run: str = ""
    """Run whose weights to start from, also written --from: its folder, or one of its policies or
    checkpoints."""
    games: int = 128
    """Games played in parallel, over all devices."""
    window: int = 25
    """Steps of each game between two updates."""
    devices: int = 0
    """Devices (on a CPU: cores) that share the games; 0 takes the most that can share games and
    minibatches evenly."""
    workers: int = -1
    """Processes that step an environment on the host: -1 is one per core, or one for a run of up to
    20,000 steps; 0 steps it in the training process, unwatched."""
    patience: float = 60.0
    """Seconds a step of an environment on the host may take before its process is replaced; making
    one, 120 or more."""
    tolerance: int = 100
    """Faults of an environment on the host that training, and each evaluation, bears before the run
    stops."""
    staleness: int = 0
    """Updates by which the learner is ahead of what plays an environment on the host: 0, or 1 to
    play the next window while learning from the last."""
    alone: bool = False
    """Close the one game on the host for each evaluation: for an environment that may exist only
    once per machine."""
    longest: int = 30_000
    """Steps after which an evaluation gives up on an episode that has not ended, and the run
    stops."""
    evaluations: int = 10
    """Evaluations spread over the run, beside the one before the first step and the one after the
    last."""
    eval_episodes: int = 100
    """Episodes of each evaluation, on games of their own."""
    greedy: bool = True
    """Evaluate the most likely actions instead of sampled ones."""
    final_episodes: int = 0
    """Greedy episodes to play once the run is finished, for `final` in its summary; 0 plays
    none."""
    film: int = 0
    """Episodes of each evaluation to film, into the run's folder and TensorBoard."""
    replays: int = -1
    """Episodes of evaluations to record for shoal live, of games that Shoal draws itself: -1 one
    in runs of 100,000 steps or more, 0 none."""
    save_every: int = 0
    """Environment steps between two checkpoints; 0 is a tenth of the run."""
    keep: int = 2
    """Checkpoints to keep, the newest."""
    best: str = ""
    """Team, or metric of the environment, whose score in evaluations decides which policy is kept
    as the best; empty takes the first team that learns."""
    track: str = ""
    """Also log to wandb, to mlflow, to both (wandb,mlflow) or to one's own, as <module>:<class>."""
    project: str = "shoal"
    """Project of Weights & Biases or experiment of MLflow that the run goes to."""
    callbacks: str = ""
    """Callbacks of one's own that follow the run, as <module>:<class>, separated by commas."""
    out: str = "runs"
    """Folder in which the run's own folder is made."""
    name: str = ""
    """Name of that folder; empty makes one of algorithm, environment, seed and time."""

    def __post_init__(self) -> None:
        for size in ("steps", "games", "window", "longest", "eval_episodes", "keep"):
            if getattr(self, size) < 1:
                raise ShoalError(f"{size} must be at least 1, not {getattr(self, size)!r}")
        if not self.patience > 0:  # also rejects NaN
            raise ShoalError(f"patience must be greater than 0, not {self.patience!r}")
        if self.workers < -1:
            raise ShoalError(f"workers must be -1 or a number of processes, not {self.workers!r}")
        if self.staleness not in (0, 1):
            raise ShoalError(f"staleness must be 0 or 1, not {self.staleness!r}")
        if self.alone and (self.games > 1 or self.film):
            raise ShoalError("alone needs one game and no film: set games to 1 and film to 0")
        counts = ("devices", "evaluations", "final_episodes", "seed", "tolerance", "save_every")
        for count in counts:
            if getattr(self, count) < 0:
                raise ShoalError(f"{count} must not be negative, not {getattr(self, count)!r}")
        if len(self.each) > 1 and self.seed and "," in str(self.seeds):
            raise ShoalError(f"seeds {self.seeds!r} says which there are: leave out seed")
        check_cluster(self.cluster)
        if not 0 <= self.film <= 100:
            raise ShoalError(f"film must be 0 to 100 episodes, not {self.film!r}")
        if not -1 <= self.replays <= 100:
            raise ShoalError(f"replays must be -1 to 100 episodes, not {self.replays!r}")
        if self.evaluations > 10_000:
            raise ShoalError(f"evaluations must be at most 10,000, not {self.evaluations!r}")
        for word in map(str.strip, self.track.split(",")) if self.track else ():
            if word not in TRACKERS and not plugins.path_of("tracker", word):
                known = [*TRACKERS, *plugins.entries("tracker")]
                raise ShoalError(
                    f"track must be of {', '.join(known)}, or <module>:<class>, not"
                    f" {word!r}{did_you_mean(word, known)}"
                )
        plain = self.out.isprintable() and self.name.isprintable() and len(self.name.encode()) < 200
        if not plain or not self.out or self.name != self.name.strip("/. ") or "/" in self.name:
            raise ShoalError("name must be a plain folder name and out the folder it goes into")

    @property
    def each(self) -> list[int]:
        """The seeds to train."""
        return numbers(self.seeds, self.seed)

    @property
    def grouped(self) -> bool:
        """Whether several seeds are trained, in one folder."""
        return self.each != [self.seed]


def check_cluster(word: str) -> None:
    """Refuse a word that is no place of runs."""
    if word not in (LOCAL, AUTO) and (":" not in word or not word.isprintable()):
        raise ShoalError(
            f"cluster must be {LOCAL}, {AUTO} or an address such as ray://host:10001, not {word!r}"
        )


def numbers(seeds: Any, first: int = 0) -> list[int]:
    """Parse seeds: `5` -> five from `first` on; `0,7,12`, `7,` or a list -> exactly these."""
    words = seeds if isinstance(seeds, list) else str(seeds).removesuffix(",").split(",")
    try:
        values = [int(word) for word in words]
    except (ValueError, TypeError):
        raise ShoalError(
            f"seeds must be a number of seeds or seeds separated by commas, not {seeds!r}"
        ) from None
    several = isinstance(seeds, list) or "," in str(seeds)
    if not several and values[0] < 1:
        raise ShoalError(f"seeds must be at least 1, not {seeds}")
    if (len(values) if several else values[0]) > MOST_SEEDS:
        raise ShoalError(f"seeds must be at most {MOST_SEEDS:,}, not {seeds}")
    found = values if several else list(range(first, first + values[0]))
    if not found or min(found) < 0 or max(found) >= 2**32 or len(set(found)) < len(found):
        told = repr(seeds) if several else f"{seeds} from {first} on"
        raise ShoalError(
            f"seeds must be at least one, different, not negative and smaller than 2**32,"
            f" not {told}"
        )
    return found

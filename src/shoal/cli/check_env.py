"""`shoal check-env`: check that an environment keeps the contract."""

from __future__ import annotations

from dataclasses import dataclass

from .. import envs
from ..config.arguments import env_options
from ..config.flags import parse
from ..envs import watched_check
from ..errors import ShoalError
from .info import sides
from .words import Trusting, first


@dataclass(frozen=True)
class Check:
    """How to check an environment; its own options are given as for training, such as --env.N 5."""

    steps: int = 1000
    """Steps to play at random, four times over."""
    seed: int = 0
    """Decides the actions and the episodes."""
    patience: float = 60.0
    """Seconds a call of an environment on the host may take; making it may take 120 or more."""

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.seed < 2**31 or not self.patience > 0:
            raise ShoalError(
                "steps must be at least 1, seed between 0 and 2**31 and patience greater than 0"
            )


def check_env(args: list[str], trust: Trusting) -> int:
    """Check an environment and print which rules it keeps."""
    description = (
        "Play an environment at random against the contract: shoal check-env pz:mpe2.simple_tag_v3"
    )
    env, args = first(args, "say which environment to check: shoal check-env <env>")
    env_own, args = env_options(args)
    options = parse(Check, Check(), args, "shoal check-env <env>", description)
    report = watched_check.check_env(
        envs.make(env, **env_own), options.steps, options.seed, options.patience
    )
    print("\n".join(sides(report.teams)))
    for rule, findings in report.findings.items():
        print(f"{'broken' if findings else 'kept  ' if report.steps else 'unseen'}  {rule}")
        for finding in findings[:3]:
            print(f"        {finding}")
        if len(findings) > 3:
            print(f"        and {len(findings) - 3} times more")
    broken = sum(bool(findings) for findings in report.findings.values())
    print(
        f"{env}: {report.steps} steps, {report.episodes} episodes begun, {broken or 'no'}"
        f" rules broken"
    )
    return 1 if broken else 0

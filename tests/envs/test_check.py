"""`shoal check-env` names the rule that is broken, the agent and the step."""

from __future__ import annotations

import re
from dataclasses import dataclass

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from brittle import AGENTS, LENGTH, Brittle
from jax import Array
from places import SUPPORT

from shoal.cli.main import main
from shoal.envs import check, make
from shoal.envs.host.match import MatchStep
from shoal.envs.native.probes import Memory, Story


class Wrong(Brittle):
    """Breaks one rule at a step of every episode."""

    def __init__(self, rule: str):
        super().__init__()
        self.rule, self.rng = rule, np.random.default_rng(7)

    def _moment(self) -> MatchStep:
        moment = super()._moment()
        seen = moment.teams["agent"]
        if self.rule == "seeds":
            seen.obs[0] = self.rng.random()  # a generator that no reset seeds
        if self.rule == "opening" and not self.step_number:
            seen.reward[1] = 5.0
        if self.rule == "discount":
            seen.discount[0] = 0.9
        if self.rule in ("dead", "died") and self.step_number >= 2:
            seen.alive[1] = False
            seen.reward[:] = 1.0, 2.0 * (self.rule == "dead" or self.step_number == 2)
        if self.rule == "shared" and self.step_number >= 2:
            seen.alive[1] = False
        if self.rule == "mask" and self.step_number == 3:
            seen.legal[1] = False
        if self.rule == "finite" and self.step_number == 3:
            seen.reward[0] = np.inf
        if self.rule == "nan" and self.step_number == 3:
            seen.reward[0] = np.nan
        if self.rule == "unseen" and self.step_number == 3:
            seen.obs[1, 2] = np.nan
        if self.rule == "shape" and self.step_number == 3:
            return moment._replace(state=np.zeros(5, np.float32))
        if self.rule == "rows" and self.step_number == 3:
            return moment._replace(teams={"agent": seen._replace(reward=np.ones(1))})
        if self.rule == "raises" and self.step_number == 3:
            raise RuntimeError("the environment fell over")
        return moment._replace(over=moment.over and self.rule != "endless")


def wrong(rule: str) -> Wrong:
    return Wrong(rule)


@pytest.mark.parametrize(
    ("rule", "sentence", "finding"),
    [
        ("raises", "It plays without an error.", "(?s)step 3: .*the environment fell over"),
        (
            "shape",
            "What is seen has the promised shapes.",
            r"team agent, step 3: the state has"
            r" shape \(5,\)",
        ),
        (
            "rows",
            "What is seen has the promised shapes.",
            r"team agent, step 3: reward has"
            r" shape \(1,\), not \(2,\)",
        ),
        ("finite", "Observations and rewards are finite.", "agent_0, step 3: its reward is inf$"),
        ("nan", "Observations and rewards are finite.", "agent_0, step 3: its reward is nan$"),
        (
            "unseen",
            "Observations and rewards are finite.",
            "agent_1, step 3: its observation holds nan$",
        ),
        ("mask", "Whoever is alive has a legal action.", "agent_1, step 3: it has none"),
        (
            "opening",
            "An episode opens with somebody alive and nothing earned.",
            "agent_1, step 0: .* earned 5",
        ),
        (
            "dead",
            "The dead earn nothing of their own after the step at which they died.",
            "agent_1, step 3: .* earned 2",
        ),
        ("discount", "A discount is 0 or 1.", "agent_0, step 0: it is 0.9"),
        (
            "seeds",
            "Equal seeds give equal episodes.",
            "agent_0, step 0: the same match, once more, shows another obs",
        ),
        ("endless", "Episodes end.", r"step 20: none has ended yet.*--env.limit"),
    ],
)
def test_a_broken_rule_is_named_with_agent_and_step(
    rule: str, sentence: str, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SUPPORT))
    found = check.check(make("test_check:wrong", rule=rule), steps=20).findings
    assert [name for name, findings in found.items() if findings] == [sentence]
    assert re.match(finding, str(found[sentence][0]))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["none", "died", "shared"])
def test_what_keeps_the_rules_is_not_blamed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward at the very step of a death is right, and so is the team's reward after it."""
    monkeypatch.syspath_prepend(str(SUPPORT))
    report = check.check(make("test_check:wrong", rule=rule), steps=20)
    assert not any(report.findings.values())
    assert report.episodes == -(-21 // (LENGTH + 1)) and report.teams["agent"].n == AGENTS


@pytest.mark.slow
def test_the_command_says_it_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SUPPORT))
    assert main(["check-env", "test_check:wrong", "--env.rule", "discount", "--steps", "9"]) == 1
    out = capsys.readouterr().out
    assert (
        "broken  A discount is 0 or 1.\n        agent_0, step 0: it is 0.9" in out
        and "1 rules broken" in out
    )
    assert main(["check-env", "matrix/penalty", "--steps", "60"]) == 0
    assert "no rules broken" in capsys.readouterr().out


class Outside(gymnasium.Env):
    """Promises numbers up to 1 and shows 2 from the third step on."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        self.taken = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple:
        self.taken += 1
        return np.full(2, 2.0 * (self.taken > 2), np.float32), 0.0, self.taken == 5, False, {}


def test_an_observation_outside_its_space_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SUPPORT))
    found = check.check(make("test_check:Outside"), steps=12).findings
    assert [name for name, findings in found.items() if findings] == [
        "Observations lie in the spaces they were promised in."
    ]
    (finding,) = found["Observations lie in the spaces they were promised in."]
    assert finding.step == 3 and "agent_0 lies outside its space" in finding.what


def test_what_was_never_seen_is_not_said_to_be_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SUPPORT))
    assert main(["check-env", "brittle:make", "--env.reset", "1.0"]) == 1
    out = capsys.readouterr().out
    assert (
        "broken  It plays without an error." in out
        and "unseen  A discount is 0 or 1." in out
        and "kept" not in out
    )


class Two:
    """Two agents at once, as PettingZoo has it; `vice` is what is wrong with them."""

    possible_agents = ["a_0", "a_1"]

    def __init__(self, vice: str = ""):
        self.vice = vice

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple:
        if self.vice == "shared":
            np.random.seed(seed)
        self.rng = np.random if self.vice == "shared" else np.random.default_rng(seed)
        self.agents, self.taken = list(self.possible_agents), 0
        return self._seen(self.agents), {}

    def _seen(self, agents: list[str]) -> dict:
        return {agent: self.rng.uniform(-1, 1, 2).astype(np.float32) for agent in agents}

    def step(self, actions: dict) -> tuple:
        self.taken += 1
        acted = self.agents
        ended = {agent: self.taken == {"a_0": 2, "a_1": 5}[agent] for agent in acted}
        self.agents = [agent for agent in acted if not ended[agent]]
        paid = self.possible_agents if self.vice == "dead" else acted
        rewards = {agent: 1.0 + (agent == "a_1") for agent in paid}
        return self._seen(acted), rewards, ended, dict.fromkeys(acted, False), {}

    def state(self) -> np.ndarray:
        return np.full(3, np.nan if self.vice == "state" and self.taken > 2 else 1.0)

    def close(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vice", "sentence", "finding"),
    [
        ("", "", ""),
        ("state", "The state is finite.", "step 3: it holds nan"),
        (
            "shared",
            "Equal seeds give equal episodes.",
            "a_0, step 1: a match beside it shows another obs: games share a generator, such as"
            " np.random.seed sets",
        ),
        (
            "dead",
            "The dead earn nothing of their own after the step at which they died.",
            "a_0, step 3: .* earned 1",
        ),
    ],
)
def test_what_only_shows_beside_another_or_in_the_state_is_found(
    vice: str, sentence: str, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator that all games of a process share plays well alone, and differently with every
    number of workers."""
    monkeypatch.syspath_prepend(str(SUPPORT))
    found = check.check(make("test_check:Two", vice=vice), steps=20).findings
    assert [name for name, findings in found.items() if findings] == ([sentence] if vice else [])
    assert not vice or re.match(finding, str(found[sentence][0]))


def test_the_reward_of_the_step_an_agent_died_with_is_its_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the environment says later: PettingZoo has no rewards for who is not there."""
    monkeypatch.syspath_prepend(str(SUPPORT))
    match = make("test_check:Two", vice="dead").open()
    told = [match.reset(0)]
    while not told[-1].over:
        told.append(match.step({"a": np.zeros(2, np.int32)}))
    assert [moment.teams["a"].reward.tolist() for moment in told] == [
        [0, 0],
        [1, 2],
        [1, 2],
        [0, 2],
        [0, 2],
        [0, 2],
    ]


@dataclass(frozen=True)
class Stuck(Memory):
    """Nothing is legal at the instant an episode ends."""

    def legal(self, world: Story) -> dict[str, Array]:
        return {
            "agent": jnp.broadcast_to(
                world.time < self.length, (self.n, self.actions, len(world.time))
            )
        }


def test_a_compiled_game_is_not_blamed_for_its_last_instant_nor_told_of_a_limit() -> None:
    assert not any(check.check(Stuck(), steps=11).findings.values())
    (finding,) = check.check(Stuck(length=50), steps=10).findings["Episodes end."]
    assert "--steps" in finding.what and "--env.limit" not in finding.what

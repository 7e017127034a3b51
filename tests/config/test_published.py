"""Published tables: every shipped one is sound, its scales are right, and what is wrong is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import PAGES, opened, with_pages

from shoal import algorithms, envs
from shoal.config import campaign, published
from shoal.config.arguments import env_options
from shoal.config.campaign_words import split
from shoal.config.published import Table, Task
from shoal.config.trust import NOTHING
from shoal.engine.evaluate import Evaluator
from shoal.errors import ShoalError
from shoal.types import Clock

PAPOUDAKIS = published.load("papoudakis2021")
OWN = """
title = "mine"
source = "me"
protocol = "as I like it"
[algorithms]
A = { train = "a2c", budget = "all" }
[[tasks]]
name = "Easy"
train = "test/identity"
steps = { all = 1000 }
published = { A = 1.5 }
"""


def task(name: str) -> Task:
    return next(one for one in PAPOUDAKIS.tasks if one.name == name)


def own(folder: Path, text: str = OWN) -> Table:
    path = folder / "mine.toml"
    path.write_text(text)
    return published.load(str(path))


def game(one: Task) -> Any:
    words = split(one.train)
    return envs.make(words[0], **env_options(words[1:])[0])


def played(env: Any, episodes: int) -> Any:
    """Episodes of random play."""
    players = {team: algorithms.random_policy(spec) for team, spec in env.teams.items()}
    clock = Clock(jnp.zeros(()), jnp.zeros(()))
    return Evaluator(env, players, episodes, False)(dict.fromkeys(players, ()), 0, clock)


# -- what we ship ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", published.names())
def test_every_algorithm_of_a_shipped_table_is_there(name: str) -> None:
    table = published.load(name)
    for entry in table.algorithms.values():
        assert algorithms.find(entry.train.split()[0]).needs_training
    native = [one for one in table.tasks if one.train and ":" not in one.train.split()[0]]
    for one in native:
        assert game(one).teams


def test_the_whole_of_papoudakis_is_there() -> None:
    assert len(PAPOUDAKIS.tasks) == 17 and len(PAPOUDAKIS.algorithms) == 9
    assert all(len(one.published) == 9 for one in PAPOUDAKIS.tasks)
    off = {name for name, one in PAPOUDAKIS.algorithms.items() if one.budget == "off-policy"}
    assert off == {"IQL", "MADDPG", "VDN", "QMIX"}
    for one in PAPOUDAKIS.tasks:
        assert one.steps["on-policy"] == 10 * one.steps["off-policy"]
    missing = {one.name for one in PAPOUDAKIS.tasks if one.missing}
    assert missing == {"Adversary", "Tag"}


# -- scales ----------------------------------------------------------------------------------------


def stepped(env: Any, actions: Any) -> tuple[list[Any], np.ndarray]:
    """Views of a game after each of `actions` `[T,N]`, and rewards `[T,N]`."""
    state, _ = opened(env, 1)
    move = jax.jit(env.step)
    seen = []
    for step, action in enumerate(actions):
        state, views = move(jax.random.key(step), state, {"agent": jnp.asarray(action)[None]})
        seen.append(views["agent"])
    return seen, np.array([view.reward[0] for view in seen])


@pytest.mark.parametrize(
    ("name", "actions", "optimum"),
    [("Climbing", [0, 0], 275), ("Penalty k=0", [0, 2], 250), ("Penalty k=-100", [2, 0], 250)],
)
def test_the_best_joint_action_of_a_matrix_game_earns_the_published_optimum(
    name: str, actions: list[int], optimum: float
) -> None:
    env = game(task(name))
    _, rewards = stepped(env, [actions] * 25)
    assert task(name).scaled(rewards.sum(0).mean()) == optimum
    assert f"at best {optimum}" in task(name).unit


def test_the_scale_of_spread_is_the_reward_of_the_old_package() -> None:
    """There each agent paid all distances and every collision, also that with itself."""
    env = game(task("Spread"))
    actions = np.random.default_rng(0).integers(0, 5, (25, 3))
    views, rewards = stepped(env, actions)
    old = 0.0
    for view in views:
        obs = np.asarray(view.obs[0])  # velocity, place, landmarks, others
        place = obs[:, 2:4]
        marks = place[0] + obs[0, 4:10].reshape(3, 2)
        far = np.linalg.norm(place[:, None] - marks[None], axis=-1)
        apart = np.linalg.norm(place[:, None] - place[None], axis=-1)
        old -= 3 * far.min(0).sum() + (apart < 0.3).sum()  # the diagonal: oneself
    assert task("Spread").scaled(rewards.sum(0).mean()) == pytest.approx(old, abs=1e-2)
    random = played(env, 1000).score()["agent"]
    assert task("Spread").scaled(random) == pytest.approx(-237, abs=4)


@pytest.mark.parametrize(
    "name", ["Speaker-Listener", "LBF 8x8-2p-2f-coop", "LBF 15x15-4p-5f", "RWARE Tiny-4p"]
)
def test_published_sums_are_sums_of_our_agents(name: str) -> None:
    found = played(game(task(name)), 64)
    (rows,) = found.returns.values()
    assert task(name).scaled(found.score()["agent"]) == pytest.approx(rows.sum(1).mean(), rel=1e-5)
    if name.startswith("RWARE"):
        assert rows.sum() > 0
        assert task(name).scaled(rows.mean()) == pytest.approx(found.means()["deliveries"])
    if name.startswith("LBF"):
        assert rows.sum() > 0 and rows.sum(1).max() <= 1 + 1e-5


def test_foraging_has_the_rules_of_the_paper() -> None:
    foraging = [one for one in PAPOUDAKIS.tasks if one.name.startswith("LBF")]
    assert len(foraging) == 4 and all(game(one).version == "v1" for one in foraging)
    for one in PAPOUDAKIS.tasks:
        agents = re.search(r"(\d)p", one.name)
        if agents:
            (spec,) = game(one).teams.values()
            assert one.scale == [spec.n, 0] and spec.n == int(agents[1])


# -- plans -----------------------------------------------------------------------------------------


def test_a_plan_has_the_papers_budget_and_protocol() -> None:
    plan = PAPOUDAKIS.plan("climbing,matrix/penalty", "mappo,IQL", [0, 1], 0.01, NOTHING)
    assert len(plan.pairs) == 2 * 6 and len(plan.jobs(Path())) == 24
    settings = {pair.algorithm: pair.config["settings"] for pair in plan.pairs}
    assert (settings["MAPPO"]["steps"], settings["IQL"]["steps"]) == (25_000, 2_500)
    assert (settings["MAPPO"]["greedy"], settings["IQL"]["greedy"]) == (False, True)
    for one in settings.values():
        # with those before the first step and after the last
        assert one["evaluations"] + 2 == 41
        assert (one["eval_episodes"], one["final_episodes"]) == (100, 1000)
    campaign.checked(plan)
    teams = {pair.config["teams"]["agent"]["algorithm"] for pair in plan.pairs}
    assert teams == {"mappo", "dqn"}


def test_patterns_leave_out_what_cannot_be_trained() -> None:
    chosen = PAPOUDAKIS._chosen_tasks("RWARE*,adv*")
    assert [one.name for one in chosen] == ["RWARE Tiny-2p", "RWARE Tiny-4p", "RWARE Small-4p"]


@pytest.mark.parametrize(
    ("tasks", "named", "told"),
    [
        ("Climbin", "", "has no task 'Climbin' (did you mean 'Climbing'?)"),
        ("", "MAPO", "has no algorithm 'MAPO' (did you mean 'MAPPO'?)"),
        ("Climbing,", "", "has no task ''"),
        ("Adversary", "", "Adversary of papoudakis2021 cannot be trained, as its adversary"),
    ],
)
def test_an_unknown_choice_is_named(tasks: str, named: str, told: str) -> None:
    with pytest.raises(ShoalError, match=re.escape(told)):
        PAPOUDAKIS.plan(tasks, named, [0], 1.0, NOTHING)


def test_too_small_a_share_is_refused_with_the_pair() -> None:
    with pytest.raises(ShoalError, match=r"IPPO \(ppo\) on Climbing, 2 steps, sampled: .*too few"):
        PAPOUDAKIS.plan("Climbing", "IPPO", [0], 1e-6, NOTHING)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jaxmarl", None)
    with pytest.raises(ShoalError, match=r"on 2s3z.*shoal\[jaxmarl\]"):
        published.load("smax").plan("2s3z", "IPPO", [0], 1.0, NOTHING)


# -- a table of one's own --------------------------------------------------------------------------


def test_a_table_of_ones_own_is_read(tmp_path: Path) -> None:
    table = own(tmp_path)
    assert table.name == "mine" and table.about.score == "last"
    (pair,) = table.plan("", "", [3], 0.5, NOTHING).pairs
    assert pair.key == ("A", "Easy, 500 steps, sampled") and pair.seeds == [3]


WRONG = {
    "unknown key": (('source = "me"', 'sauce = "me"'), "a table has no 'source': add it"),
    "another unknown key": (("steps =", "step ="), "task 1 has no 'steps': add it"),
    "a misspelt key": (("published =", "digit = 2\npublished ="), "did you mean 'digits'?"),
    "no tasks": (("[[tasks]]", "[tusks]"), "it has no tasks"),
    "no algorithms": (("[algorithms]", "[algos]"), "it has no algorithms"),
    "no such column": (("{ A = 1.5 }", "{ B = 1.5 }"), "a number of 'B'"),
    "no such budget": (("{ all = 1000 }", "{ on = 1000 }"), "no steps of the budget 'all'"),
    "no steps": (("{ all = 1000 }", "{ all = 0 }"), "no steps of the budget 'all'"),
    "text for a number": (("{ A = 1.5 }", "{ A = 'x' }"), "published.A must be a number"),
    "no environment": (('train = "test/identity"\n', ""), "must have either train"),
    "a scale that is none": (("published =", "scale = [0, 1]\npublished ="), "scale of 'Easy'"),
    "a kind of score": (("[algorithms]", 'score = "top"\n[algorithms]'), "one of best, last"),
    "help": (('train = "test/identity"', 'train = "test/identity --help"'), "leave out --help"),
    "a comma": (('"Easy"', '"Easy, hard"'), "names have letters and no comma"),
    "no protocol of one": (("[algorithms]", "evaluations = 1\n[algorithms]"), "at least 2"),
    "no TOML": (("[algorithms]", "[algorithms"), "is not TOML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_table_that_is_wrong_says_where(case: str, tmp_path: Path) -> None:
    change, told = WRONG[case]
    assert change[0] in OWN
    with pytest.raises(ShoalError, match=re.escape(told)) as error:
        own(tmp_path, OWN.replace(*change))
    assert "mine.toml" in str(error.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('metric = "wun"', r"has no metric 'wun': it has none"),
        ('team = "agnet"', r"Easy has no team 'agnet' \(did you mean 'agent'\?\): it has agent"),
    ],
)
def test_a_score_that_a_game_does_not_have_is_refused_before_training(
    line: str, told: str, tmp_path: Path
) -> None:
    table = own(tmp_path, OWN.replace("published =", f"{line}\npublished ="))
    with pytest.raises(ShoalError, match=told):
        table.plan("", "", [0], 1.0, NOTHING)


@with_pages
def test_the_table_in_the_docs_can_be_planned(tmp_path: Path) -> None:
    page = (PAGES / "reproduce.md").read_text()
    found = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found
    table = own(tmp_path, found[1])
    assert len(table.plan("", "", [0], 0.1, NOTHING).pairs) == 2


def test_code_that_a_table_names_is_not_run_unasked(tmp_path: Path) -> None:
    table = own(tmp_path, OWN.replace("test/identity", "my_games:Chase"))
    with pytest.raises(ShoalError, match="--trust"):
        table.plan("", "", [0], 1.0, NOTHING)


@pytest.mark.parametrize("word", ["papoudakis", "nothing", ""])
def test_an_unknown_table_is_named(word: str) -> None:
    with pytest.raises(ShoalError, match=f"there is no table '{word}'.*--list"):
        published.load(word)

"""The replay against a plain model of it: what is drawn was lived, in that order, and everything is
drawn alike."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OFF, OWN, TEAM, TINY, build, call, clock, mortal, on_devices, studied
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.errors import ShoalError
from shoal.learning.memory import Drawn, Replay, empty
from shoal.types import Box, Discrete, Share, Spec, View, Window

SLOTS, GAMES = 12, 3
SPEC = Spec(("a", "b"), obs=2, state=3, action=Discrete(4), rivals=5)
REAL = Spec(("a", "b"), obs=2, state=3, action=Box((-1.0,) * 4, (1.0,) * 4), rivals=5)
put = jax.jit(Replay.put)
draw = jax.jit(Replay.draw, static_argnums=(2, 3, 4, 6))


class Stream(NamedTuple):
    """All that ever happened: instants 0…L of some games and what was done at each."""

    view: View  # [L,B,…]
    action: np.ndarray  # [L,B,N,…]
    rivals: np.ndarray  # [L,B,M]

    def window(self, start: int, steps: int) -> Window:
        view = jax.tree.map(lambda x: x[start : start + steps + 1], self.view)
        return Window(
            view, self.action[start : start + steps], (), (), (), self.rivals[start : start + steps]
        )


@cache
def stream(spec: Spec = SPEC, length: int = 80, seed: int = 0) -> Stream:
    """Random, but for the first feature of what agent 0 sees: the number of the instant."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(length, GAMES, *shape)).astype(np.float32)

    def flags(*shape: int) -> np.ndarray:
        return rng.random((length, GAMES, *shape)) < 0.4

    obs = normal(spec.n, spec.obs)
    obs[:, :, 0, 0] = np.arange(length)[:, None]
    view = View(
        obs,
        normal(spec.state),
        flags(spec.n, spec.action.size),
        flags(spec.n),
        flags(),
        normal(spec.n),
        flags(spec.n).astype(np.float32),
    )
    discrete = isinstance(spec.action, Discrete)
    action = (
        rng.integers(0, 4, (length, GAMES, spec.n)).astype(np.int32)
        if discrete
        else normal(spec.n, 4)
    )
    return Stream(view, action, normal(spec.rivals))


def filled(
    steps: int, puts: int, spec: Spec = SPEC, prioritised: bool = False, slots: int = SLOTS
) -> Replay:
    """A ring after so many windows of so many steps."""
    memory = empty(spec, GAMES, slots, state=True, rivals=True, prioritised=prioritised)
    for k in range(puts):
        memory = put(memory, stream(spec).window(k * steps, steps))
    return memory


def kept(steps: int, puts: int, slots: int = SLOTS) -> list[int]:
    """The model: instants a list of so many slots still holds, the oldest first. The very first
    never came in."""
    lived: list[int] = []
    for k in range(puts):
        lived = [*lived, *range(k * steps + 1, (k + 1) * steps + 1)][-slots:]
    return lived


def instants_of(drawn: Drawn) -> np.ndarray:
    """[T+1,B] their numbers."""
    return np.asarray(drawn.window.view.obs[:, :, 0, 0]).astype(int)


def assert_lived(drawn: Drawn, lived: list[int], ahead: bool, whole: Stream) -> None:
    """Every window is a stretch of its game's stream, all of it still kept, each field and each
    action in its place."""
    number, game = instants_of(drawn), np.asarray(drawn.game)
    assert (np.diff(number, axis=0) == 1).all()
    assert number.min() >= lived[0] and number.max() + ahead <= lived[-1]
    for name, ours, theirs in zip(View._fields, drawn.window.view, whole.view, strict=True):
        np.testing.assert_array_equal(ours, theirs[number, game], err_msg=name)
        assert ours.dtype == theirs.dtype, name
    np.testing.assert_array_equal(drawn.window.action, whole.action[number[:-1], game])
    np.testing.assert_array_equal(drawn.before[0], whole.action[number[0] - 1, game])
    np.testing.assert_array_equal(drawn.window.rivals, whole.rivals[number[:-1], game])
    if ahead:
        np.testing.assert_array_equal(drawn.rivals_after, whole.rivals[number[-1], game])


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([1, 3, 4, 12]),
    st.integers(1, 30),
    st.integers(1, SLOTS - 1),
    st.booleans(),
    st.booleans(),
    st.sampled_from([SPEC, REAL]),
    st.integers(0, 2**32 - 1),
)
def test_what_is_drawn_was_lived(steps, puts, length, ahead, prioritised, spec, seed):
    """Any window, from one transition to all but one slot, before and after the ring wraps
    around."""
    puts = min(puts, 79 // steps)
    lived = kept(steps, puts)
    assume(len(lived) >= length + 1 + ahead)
    memory = filled(steps, puts, spec, prioritised)
    assert memory.size == len(lived) and memory.head == steps * puts % SLOTS
    assert memory.windows(length + 1 + ahead) == len(lived) - length - ahead
    drawn = draw(memory, jax.random.key(seed), 32, length, ahead)
    assert drawn.window.action.shape[:2] == (length, 32)
    assert_lived(drawn, lived, ahead, stream(spec))


@pytest.mark.parametrize(
    ("length", "ahead"), [(1, False), (3, False), (3, True), (10, True), (11, False)]
)
@pytest.mark.parametrize("puts", [3, 5])
@pytest.mark.parametrize("prioritised", [False, True])
def test_every_window_is_drawn_and_as_often_as_any_other(length, ahead, puts, prioritised):
    """Before the ring is full and after it has wrapped around; priorities that are alike change
    nothing."""
    count, lived = 20_000, kept(4, puts)
    if len(lived) < length + 1 + ahead:
        pytest.skip("no such window yet")
    drawn = draw(filled(4, puts, prioritised=prioritised), jax.random.key(5), count, length, ahead)
    start, game = instants_of(drawn)[0] - lived[0], np.asarray(drawn.game)
    cells = (len(lived) - length - ahead, GAMES)
    counts = np.zeros(cells)
    np.add.at(counts, (start, game), 1)
    expected = count / counts.size
    assert ((counts - expected) ** 2 / expected).sum() < counts.size + 4 * (2 * counts.size) ** 0.5
    assert counts.min() > 0
    np.testing.assert_allclose(drawn.importance, 1.0, rtol=1e-5)


def test_an_empty_ring_has_no_windows():
    assert empty(SPEC, GAMES, SLOTS, True, True, False).windows(2) == 0
    assert filled(4, 1).windows(5) == 0 and filled(4, 1).windows(4) == 1


# -- priorities ------------------------------------------------------------------------------------


def ranked(memory: Replay, surprise: np.ndarray) -> Replay:
    """The ring with these priorities `[C,B]`."""
    slot, game = (x.ravel() for x in np.indices(surprise.shape))
    nothing = Drawn(*[None] * len(Drawn._fields))
    return memory.rank(
        nothing._replace(slot=jnp.asarray(slot), game=jnp.asarray(game)),
        jnp.asarray(surprise.ravel()),
    )


@cache
def uneven(puts: int) -> tuple[Replay, np.ndarray]:
    """A ring with random priorities, and the chances `[C,B]` of windows of 3 transitions to begin
    in each place."""
    surprise = np.random.default_rng(1).gamma(0.7, size=(SLOTS, GAMES)).astype(np.float32)
    memory = ranked(filled(4, puts, prioritised=True), surprise)
    oldest = (4 * puts - len(kept(4, puts))) % SLOTS
    begin = [(oldest + k) % SLOTS for k in range(len(kept(4, puts)) - 3)]
    weight = np.zeros_like(surprise)
    weight[begin] = surprise[begin] + 1e-6
    return memory, weight / weight.sum()


@pytest.mark.parametrize("puts", [2, 3, 5])
def test_windows_are_drawn_in_proportion_to_their_priority(puts):
    memory, chance = uneven(puts)
    count = 20_000
    drawn = draw(memory, jax.random.key(0), count, 3, False)
    counts = np.zeros_like(chance)
    np.add.at(counts, (np.asarray(drawn.slot), np.asarray(drawn.game)), 1)
    assert not counts[chance == 0].any()
    deviation = np.abs(counts - count * chance) / np.sqrt(count * chance + 1)
    assert deviation.max() < 4
    assert_lived(drawn, kept(4, puts), False, stream())


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_importance_undoes_the_bias(beta):
    """(1 / (windows · chance))^β, over the largest drawn (Schaul et al. 2016, §3.4)."""
    memory, chance = uneven(5)
    drawn = draw(memory, jax.random.key(0), 256, 3, False, beta)
    taken = chance[np.asarray(drawn.slot), np.asarray(drawn.game)]
    weight = (1 / ((chance > 0).sum() * taken)) ** beta
    np.testing.assert_allclose(drawn.importance, weight / weight.max(), rtol=1e-3)
    assert drawn.importance.max() == 1.0


def test_weighted_draws_average_to_the_plain_mean():
    """What β = 1 is for: each window counts alike in the end."""
    memory, chance = uneven(3)
    drawn = draw(memory, jax.random.key(0), 50_000, 3, False, 1.0)
    place = np.arange(SLOTS)[:, None] + 100.0 * np.arange(GAMES)
    weight = np.asarray(drawn.importance, np.float64)
    ours = (place[np.asarray(drawn.slot), np.asarray(drawn.game)] * weight).sum() / weight.sum()
    assert ours == pytest.approx(place[chance > 0].mean(), rel=0.03)


def test_rank_sets_the_priorities_of_what_was_drawn_and_of_nothing_else():
    memory = filled(4, 3, prioritised=True)
    drawn = draw(memory, jax.random.key(0), 5, 3, False)
    surprise = np.arange(1.0, 6.0, dtype=np.float32)
    after = np.asarray(memory.rank(drawn, surprise).priority)
    expected = np.array(memory.priority)
    for k in range(5):
        expected[drawn.slot[k], drawn.game[k]] = surprise[k] + 1e-6
    np.testing.assert_allclose(after, expected, rtol=1e-6)
    assert filled(4, 3).rank(drawn, surprise).priority.shape == (0, GAMES)


def test_what_is_new_has_the_highest_priority_there_is():
    memory = ranked(filled(4, 2, prioritised=True), np.full((SLOTS, GAMES), 0.5, np.float32))
    memory = memory._replace(priority=memory.priority.at[1, 2].set(7.0))
    after = put(memory, stream().window(8, 4))
    assert (after.priority[8:12] == 7.0).all() and (after.priority[:8] == memory.priority[:8]).all()


def test_a_draw_at_the_very_end_of_the_unit_interval_is_a_window_too(monkeypatch):
    """Rounding may make the last of the stratified draws the sum of all priorities itself."""
    memory = filled(4, 2, prioritised=True)
    for edge in (0.0, 1 - 2.0**-23):  # the least and the most that `uniform` gives
        monkeypatch.setattr(
            jax.random, "uniform", lambda key, shape, edge=edge: jnp.full(shape, edge, jnp.float32)
        )
        drawn = memory.draw(jax.random.key(0), 32, 3, False)
        assert jnp.isfinite(drawn.importance).all()
        assert_lived(drawn, kept(4, 2), False, stream())


# -- room ------------------------------------------------------------------------------------------


USUAL = Share(games=4, window=10)


def size_of(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def memory_of(
    name: str, env_id: str, team: str, share: Share = USUAL, options: Any = (), **config: Any
):
    """The shapes of a replay, and the spec it is for."""
    env = make(env_id, **dict(options))
    algorithm = build(name, env, team, **(TINY | OFF | config))
    return jax.eval_shape(lambda: algorithm.memory(None, share)), env.teams[team]


def test_an_instant_is_kept_once_in_the_smallest_types():
    memory, _ = memory_of("dqn", "mpe/simple_spread", TEAM)
    seen, legal, alive, first = 3 * 18 * 4, 3 * 5, 3, 1
    earned, discount, action = 3 * 4, 3 * 4, 3 * 4
    assert size_of(memory.ring) == 80 // 10 * 10 * 4 * (
        seen + legal + alive + first + earned + discount + action
    )
    assert size_of(memory) - size_of(memory.ring) == 8  # where the head is, how many there are
    kinds = jax.tree.map(lambda x: x.dtype.name, memory.ring.view)
    assert kinds == View("float32", "float32", "bool", "bool", "bool", "float32", "float32")
    assert memory.ring.action.dtype == jnp.int32
    real, _ = memory_of("ddpg", "mpe/simple_spread", TEAM, options=(("continuous_actions", True),))
    assert real.ring.action.dtype == jnp.float32 and real.ring.action.shape == (80, 4, 3, 5)


@pytest.mark.parametrize(
    ("name", "env_id", "team", "config", "state", "rivals"),
    [
        ("vdn", "mpe/simple_spread", "agent", {}, False, False),
        # the state is the observations, joined
        ("qmix", "mpe/simple_spread", "agent", {}, False, False),
        ("vdn", "mpe/simple_tag", "adversary", {}, False, False),
        ("dqn", "mpe/simple_tag", "adversary", {}, False, False),
        ("qmix", "mpe/simple_tag", "adversary", {}, True, False),
        ("qtran", "mpe/simple_tag", "adversary", {}, True, False),
        ("maddpg", "mpe/simple_tag", "adversary", {}, True, False),
        ("maddpg", "mpe/simple_tag", "adversary", {"rivals": True}, True, True),
        ("sac", "mpe/simple_tag", "adversary", {}, False, False),
    ],
)
def test_the_state_and_rivals_are_kept_only_where_they_are_read(
    name, env_id, team, config, state, rivals
):
    memory, spec = memory_of(name, env_id, team, **config)
    assert memory.ring.view.state.shape[-1] == (spec.state if state else 0)
    assert memory.ring.rivals.shape[-1] == (spec.rivals if rivals else 0)
    assert memory.priority.size == 0
    assert memory_of(name, env_id, team, priority=0.6, **config)[0].priority.shape == (80, 4)


def test_a_million_steps_take_the_room_of_a_million_instants():
    share, capacity = Share(128, 25), 1_000_000
    memory, spec = memory_of("qmix", "mpe/simple_tag", "adversary", share, capacity=capacity)
    n, a = spec.n, spec.action.size
    instant = 4 * (n * spec.obs + spec.state + 3 * n) + n * a + n + 1
    assert capacity * instant <= size_of(memory) <= 1.15 * capacity * instant


@pytest.mark.parametrize(
    ("share", "slots"),
    [(Share(4, 10), 80), (Share(4, 7), 84), (Share(2, 10, 2), 80), (Share(64, 25), 25)],
)
def test_a_ring_holds_its_capacity_in_whole_windows(share, slots):
    """Of all devices together: 320 steps."""
    memory, _ = memory_of("dqn", "test/mortal", TEAM, share)
    assert memory.ring.action.shape[:2] == (slots, share.games)


def test_a_ring_too_small_for_a_window_is_refused():
    algorithm = build("dqn", mortal(), **(TINY | OFF | {"length": 8, "capacity": 36}))
    algorithm.check(Share(4, 5))
    for share, sentence in ((Share(9, 4), "raise capacity"), (Share(4, 5, 3), "change batch")):
        with pytest.raises(ShoalError, match=sentence):
            algorithm.check(share)


@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_the_program_works_in_place(priority):
    """A ring of 20 MB, and no room for a second one."""
    env = make("test/identity")
    settings = TINY | OFF | {"capacity": 300_000, "priority": priority, "updates": 3}
    loop = Loop(env, {TEAM: build("dqn", env, **settings)}, games=8, window=10, steps=1000)
    learners = {TEAM: loop.algorithms[TEAM].init(np.random.default_rng(0))}
    state = jax.eval_shape(loop._open_all, learners, jax.random.key(0))
    ring = size_of(state.memories[TEAM])
    assert ring > 20e6 and loop.sizes() == {TEAM: ring}
    needs = loop.program(2).lower(state).compile().memory_analysis()
    assert needs.temp_size_in_bytes < ring / 4
    assert needs.alias_size_in_bytes >= ring


# -- batches ---------------------------------------------------------------------------------------


def warmed(drawn: Drawn, burn_in: int) -> np.ndarray:
    """[T,B] where a memory is warm: after `burn_in` transitions, or once an episode has opened in
    the window."""
    first = np.asarray(drawn.window.view.first)[:-1]
    warm = np.zeros(first.shape, bool)
    for game in range(first.shape[1]):
        for t in range(len(first)):
            warm[t, game] = t >= burn_in or first[: t + 1, game].any()
    return warm


@pytest.mark.parametrize("torso", ["mlp", "gru"])
@pytest.mark.parametrize("reward", ["own", "mean"])
def test_burn_in_only_warms_memories_up(torso, reward):
    """Unless there is nothing to remember: an episode opened in the window, or the net is
    feed-forward."""
    seen = studied("dqn", torso=torso, burn_in=3, reward=reward, batch=64)
    window = seen.drawn.window
    warm = warmed(seen.drawn, 3 if torso == "gru" else 0)[..., None]
    acted = np.asarray(window.weight) > 0
    counts = acted if reward == "own" else np.broadcast_to(window.valid, acted.shape)
    assert warm.all() == (torso == "mlp") and warm[:3].any()
    np.testing.assert_allclose(seen.batch.weight, counts * warm / (counts * warm).sum(), rtol=1e-5)
    np.testing.assert_allclose(
        seen.batch.actor_weight, acted * warm / (acted * warm).sum(), rtol=1e-5
    )


def test_the_joined_state_is_that_of_the_game():
    seen = studied("qmix")
    number = seen.drawn.slot + 1 + np.arange(7)[:, None]
    assert seen.memory.ring.view.state.size == 0
    np.testing.assert_array_equal(
        seen.batch.window.view.state, seen.played.view.state[number, seen.drawn.game]
    )


def test_rivals_are_what_the_others_did():
    env = make("mpe/simple_tag")
    seen = studied("maddpg", env, "adversary", rivals=True, windows=2)
    number = seen.drawn.slot + 1 + np.arange(7)[:, None]
    assert seen.batch.window.rivals.shape == (6, 8, env.teams["agent"].action.size)
    assert (seen.batch.window.rivals.sum(-1) == 1).all() and (
        np.ptp(seen.batch.window.rivals, 0) > 0
    ).any()
    np.testing.assert_array_equal(
        seen.batch.window.rivals, seen.played.rivals[number[:-1], seen.drawn.game]
    )
    np.testing.assert_array_equal(
        seen.batch.rivals_after, seen.played.rivals[number[-1], seen.drawn.game]
    )
    np.testing.assert_array_equal(
        seen.batch.window.view.state, seen.played.view.state[number, seen.drawn.game]
    )


def test_surprise_becomes_priority():
    """A window's new priority is how wrong the learner was about it, to the power asked for."""
    algorithm = build("dqn", mortal(), **(TINY | OFF | {"priority": 0.5, "updates": 1}))
    algorithm.improve = lambda learner, batch, key, now: (learner, {}, jnp.full(8, 9.0))
    seen = studied("dqn", priority=0.5, updates=1)
    after = call(
        lambda m: algorithm.learn(seen.learner, m, jax.random.key(0), clock())[1].priority,
        seen.memory,
    )
    changed = after != seen.memory.priority
    assert 1 <= changed.sum() <= 8
    np.testing.assert_allclose(after[changed], 3.0, rtol=1e-5)


def loss_of(importance: np.ndarray) -> float:
    seen = studied("dqn")
    batch = seen.batch._replace(importance=importance)
    return float(call(partial(seen.algorithm.losses, seen.learner.params), seen.learner, batch)[0])


def test_importance_scales_each_windows_share_of_the_loss():
    ones = np.ones(8, np.float32)
    alone = [loss_of(np.eye(8, dtype=np.float32)[k]) for k in range(8)]
    assert sum(alone) == pytest.approx(loss_of(ones), rel=1e-5)
    assert loss_of(0.25 * ones) == pytest.approx(0.25 * loss_of(ones), rel=1e-5)


def test_importance_is_divided_by_the_largest_of_all_devices():
    """One device's windows are alike, 1; half of the other's are hardly ever drawn, its others
    weigh a half."""
    seen = studied("dqn", priority=0.5)
    algorithm = build("dqn", mortal(), **(TINY | OFF | {"priority": 0.5}))
    algorithm.improve = lambda learner, batch, key, now: (
        learner,
        {"told": batch.importance},
        jnp.ones(4),
    )
    alike = np.ones(seen.memory.priority.shape, np.float32)
    uneven = np.where(np.arange(alike.shape[1]) % 2 == 0, alike, np.float32(1e-9))

    def step(priority):
        now, memory = clock(progress=1.0), jax.tree.map(jnp.asarray, seen.memory)
        return algorithm._step(memory, now, (seen.learner, priority[0]), jax.random.key(0))[1][
            "told"
        ]

    told = jax.jit(on_devices(step, 2, OWN, OWN))(np.stack([alike, uneven]))
    np.testing.assert_allclose(told, [1.0] * 4 + [0.5] * 4, rtol=1e-3)


# -- whole episodes --------------------------------------------------------------------------------


@pytest.mark.parametrize("prioritised", [False, True])
def test_whole_episodes_begin_at_openings_and_all_are_drawn_alike(prioritised):
    """Also behind the seam of the ring; those too young for a window wait."""
    memory = filled(4, 5, prioritised=prioritised)
    drawn = draw(memory, jax.random.key(0), 6000, 3, False, 1.0, True)
    lived = kept(4, 5)
    assert_lived(drawn, lived, False, stream())
    first = np.asarray(stream().view.first)[lived[:-3]]
    openings = {(lived[slot], game) for slot, game in zip(*np.nonzero(first), strict=True)}
    found = list(zip(instants_of(drawn)[0].tolist(), drawn.game.tolist(), strict=True))
    assert set(found) == openings and len(openings) > 5
    share = np.array([found.count(one) for one in openings]) / len(found)
    np.testing.assert_allclose(share, 1 / len(openings), rtol=0.02)
    np.testing.assert_allclose(drawn.importance, 1.0)


def test_whole_episodes_wait_for_an_opening():
    memory = filled(4, 3)
    never = memory.ring.view._replace(first=jnp.zeros_like(memory.ring.view.first))
    assert memory.ready(4, False) and memory.ready(4, True)
    memory = memory._replace(ring=memory.ring._replace(view=never))
    assert memory.ready(4, False) and not memory.ready(4, True)


def test_nothing_after_the_end_of_a_whole_episode_counts():
    """Episodes of 6 steps in windows of 10: transitions 0 to 5, the dummy one and what follows."""
    seen = studied("dqn", windows=8)
    algorithm = build("dqn", mortal(), **(TINY | OFF | {"whole_episodes": True, "length": 10}))
    weight = call(
        lambda memory: algorithm.batch(
            memory.draw(jax.random.key(0), 8, 10, False, 1.0, True)
        ).weight.sum(-1),
        seen.memory,
    )
    assert (weight[:6] > 0).all() and not weight[6:].any()
    assert weight.sum() == pytest.approx(1.0)


def test_whole_episodes_are_learnt_from():
    env = mortal()
    algorithm = build("vdn", env, **(TINY | OFF | {"whole_episodes": True}))
    loop = Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000)
    _, metrics = loop.program(3)(loop.init(0))
    # an opening is first kept at the seventh step, too late for a window of the first ten
    assert metrics.learning[TEAM]["updates"].tolist() == [0, 2, 2]
    assert (metrics.learning[TEAM]["loss"][1:] > 0).all()

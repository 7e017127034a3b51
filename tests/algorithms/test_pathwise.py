"""The pathwise family: actors, critics, what each is shown and from which policies targets come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import Drifting, Opposed
from helpers import (
    OFF,
    PATHWISE,
    TEAM,
    TINY,
    Studied,
    altered,
    assert_close,
    bits,
    build,
    call,
    clock,
    mortal,
    quick,
    replayed,
    run,
    studied,
    traced,
)
from jax import Array

from shoal.algorithms import find
from shoal.algorithms.learning_in_turn import PathwiseInTurn
from shoal.algorithms.sac import SAC
from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.envs.native.probes import ContinuousIdentity, Endless, Quiz
from shoal.errors import ShoalError
from shoal.nets.distributions import Deterministic, Relaxed, masked
from shoal.nets.inputs import as_action, as_input
from shoal.types import Box, Discrete, Spec

CENTRAL = [
    name for name in PATHWISE if find(name).central and not issubclass(find(name), PathwiseInTurn)
]
SOFT = [name for name in PATHWISE if issubclass(find(name), SAC)]
DETERMINISTIC = [name for name in PATHWISE if name not in SOFT]
# Feed-forward and shared, they run in test_learning.
RUN = [
    (name, *how)
    for name in PATHWISE
    for how in (("gru", "own", "discrete"), ("mlp", "own", "continuous"))
]
ONLY_TRACED = [
    (name, *how)
    for name in PATHWISE
    for how in (("mlp", "own", "discrete"), ("gru", "shared", "continuous"))
]


@dataclass(frozen=True)
class Skewed(ContinuousIdentity):
    """Agents see a number in [-1,1] and must say where it stands in [-2,5]; agent_0 may also nod,
    which is nothing."""

    @cached_property
    def teams(self) -> dict[str, Spec]:
        names = tuple(f"agent_{i}" for i in range(self.n))
        space = Box((-2.0, 1.0), (5.0, 3.0))
        return self.line_up(
            {TEAM: Spec(names, 1, self.n, space, action_sizes=(2, *[1] * (self.n - 1)))}
        )

    def advance(self, key: Array, world: Quiz, actions: dict[str, Array]) -> Quiz:
        said = (actions[TEAM][:, 0] - 1.5) / 3.5
        return super().advance(key, world, {TEAM: said[:, None]})


REAL = Skewed(length=5)
GAMES = {"discrete": mortal(), "continuous": REAL}


# -- every member ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("member", RUN, ids="-".join)
def test_training_stays_finite_and_moves_every_part(member):
    algorithm, before, state, metrics = replayed(*member[:3], GAMES[member[3]])
    learner = state.learners[TEAM]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, metrics)))
    assert learner.updates == 6
    for nets, fresh in ((learner.params, before.params), (learner.target, before.target)):
        for part, net in nets.items():
            moved = [
                ours != theirs for ours, theirs in zip(bits(net), bits(fresh[part]), strict=True)
            ]
            assert all(moved), part
    assert set(learner.target) == ({"critic"} if algorithm.name in SOFT else {"actor", "critic"})


@pytest.mark.parametrize("member", ONLY_TRACED, ids="-".join)
def test_the_other_torsos_and_sharings_fit_together(member):
    assert {"critic_loss", "actor_loss", "q", "updates"} <= set(
        traced(*member[:3], GAMES[member[3]])
    )


@pytest.mark.parametrize("name", PATHWISE)
def test_actions_are_legal(name):
    """Of all that was kept, but for the dummy steps over a reset."""
    ring = replayed(name, "gru", "own", GAMES["discrete"])[2].memories[TEAM].ring
    ring = jax.tree.map(lambda x: x[0, :30], ring)
    allowed = np.take_along_axis(ring.view.legal[:-1], ring.action[1:, ..., None], -1)[..., 0]
    assert allowed[~ring.view.first[1:]].all() and ring.view.first.any()


@pytest.mark.parametrize("name", PATHWISE)
def test_trap_22_actions_stay_within_bounds_and_unused_dimensions_stand_still(name):
    """In the game's units [-2,5] and [1,3]; as nets read them, a dimension an agent does not have
    is 0."""
    algorithm, _, state, _ = replayed(name, "mlp", "own", REAL)
    action = np.asarray(state.memories[TEAM].ring.action)[0, :30]
    assert (action >= np.array([-2, 1]) - 1e-5).all() and (action <= np.array([5, 3]) + 1e-5).all()
    assert np.ptp(action[..., 0]) > 1 and np.ptp(action[:, :, 0, 1]) > 0.3
    np.testing.assert_allclose(as_input(action, algorithm.spec)[:, :, 1, 1], 0.0, atol=1e-6)


# -- actions as nets read them ---------------------------------------------------------------------


def test_trap_22_an_action_survives_the_way_to_the_net_and_back():
    spec = REAL.teams[TEAM]
    action = np.random.default_rng(0).uniform([-2, 1], [5, 3], (7, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(as_action(as_input(action, spec), spec), action, rtol=1e-5)
    edges = jnp.array([[[-2.0, 1.0], [5.0, 3.0], [1.5, 2.0]]])
    np.testing.assert_allclose(as_input(edges, spec), [[[-1, -1], [1, 1], [0, 0]]], atol=1e-6)
    choice = np.arange(4)[:, None] % 3
    discrete = Spec(("a",), 1, 1, Discrete(3))
    np.testing.assert_array_equal(as_action(as_input(choice, discrete), discrete), choice)


# -- Gumbel-softmax --------------------------------------------------------------------------------

LOGITS = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
LEGAL = np.array([[1, 1, 1, 1], [0, 1, 1, 1], [1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 0, 1]], bool)


def choice(logits: Array) -> Relaxed:
    return Relaxed(logits, jnp.asarray(LEGAL), masked(logits, LEGAL).log_probs)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_trap_21_relaxed_is_one_of_the_actions_forwards_and_a_softmax_backwards(temperature):
    key, upstream = (
        jax.random.key(0),
        np.random.default_rng(1).normal(size=LOGITS.shape).astype(np.float32),
    )

    def soft(logits):
        noise = jax.random.gumbel(key, logits.shape)
        return jax.nn.softmax((masked(logits, LEGAL).log_probs + noise) / temperature)

    ours, pull = jax.vjp(lambda x: choice(x).relaxed(key, temperature), LOGITS)
    _, pull_soft = jax.vjp(soft, LOGITS)
    hard = np.asarray(ours)
    assert (
        set(np.unique(np.round(hard, 5))) == {0.0, 1.0} and (np.abs(hard.sum(-1) - 1) < 1e-5).all()
    )
    assert LEGAL[np.arange(5), hard.argmax(-1)].all()
    assert_close(pull(upstream), pull_soft(upstream), 1e-5)
    assert (
        np.abs(pull(upstream)[0]).max() > 1e-3 and not np.asarray(pull(upstream)[0])[~LEGAL].any()
    )


def test_trap_21_relaxed_draws_follow_the_policy_and_the_mode_does_not_vary():
    keys = jax.random.split(jax.random.key(0), 20_000)
    rate = np.asarray(jax.vmap(lambda key: choice(LOGITS).relaxed(key, 1.0))(keys).mean(0))
    explored = np.asarray(jax.vmap(lambda key: choice(LOGITS).explore(key, 9.0))(keys).mean(0))
    probs = np.exp(LOGITS.astype(np.float64)) * LEGAL
    probs /= probs.sum(-1, keepdims=True)
    np.testing.assert_allclose(rate, probs, atol=0.015)
    np.testing.assert_allclose(explored, probs, atol=0.015)
    np.testing.assert_array_equal(
        choice(LOGITS).mode().argmax(-1), np.where(LEGAL, LOGITS, -np.inf).argmax(-1)
    )


def lifelike(seen: Studied) -> Any:
    """The context in which the stored actions were taken."""
    return seen.algorithm.played(seen.batch, seen.batch.window.rivals)


@pytest.mark.parametrize("name", PATHWISE)
def test_trap_21_each_agent_replaces_its_own_action_alone(name):
    """In agent i's eyes agent j does as it did, or also anew if they learn in turn; the dead do
    nothing."""
    seen = studied(name, make("test/mortal", n=3))
    context = lifelike(seen)
    own = np.random.default_rng(0).normal(size=context.action.shape).astype(np.float32)
    told = np.asarray(seen.algorithm.with_own_actions(context, own).action)
    alive = np.asarray(context.view.alive)[..., None]
    if name not in CENTRAL:
        np.testing.assert_allclose(told, own * alive)
        return
    assert told.shape == (6, 8, 3, 3, 3)
    for looks in range(3):
        for acts in range(3):
            expected = own * alive if looks == acts else context.action
            np.testing.assert_allclose(told[..., looks, acts, :], expected[..., acts, :])
    np.testing.assert_array_equal(context.action, np.eye(3)[seen.batch.window.action] * alive)


@pytest.mark.parametrize("env", GAMES)
@pytest.mark.parametrize("name", ["maddpg", "matd3"])
def test_trap_21_an_actor_learns_through_its_own_action_alone(name, env):
    """Weights of its own: agent 0's gradient is the same whatever agent 1's policy would do now."""
    seen = studied(name, GAMES[env], sharing="own")

    def slope(actor):
        return jax.grad(
            lambda a: seen.algorithm.actor_loss({"actor": a}, seen.learner, seen.batch, key)[0]
        )(actor)

    key, actor = jax.random.key(0), seen.learner.params["actor"]
    other = jax.tree.map(lambda x: x.at[1].add(0.5), jax.tree.map(jnp.asarray, actor))
    ours, theirs = call(lambda a, b: (slope(a), slope(b)), actor, other)
    assert_close(*(jax.tree.map(lambda x: x[0], one) for one in (ours, theirs)), 1e-6)
    ones, others = (
        np.concatenate([leaf[1].ravel() for leaf in jax.tree.leaves(one)]) for one in (ours, theirs)
    )
    assert np.abs(ones - others).max() > 1e-5


@pytest.mark.parametrize(
    ("name", "env"),
    [*((name, "discrete") for name in PATHWISE), ("td3", "continuous"), ("sac", "continuous")],
)
def test_trap_21_greedy_play_is_the_mode_and_training_explores(name, env):
    seen = studied(name, GAMES[env])
    view = jax.tree.map(lambda x: x[0], seen.played.view)
    carry = seen.algorithm.carry(seen.learner, 4)

    @jax.jit
    def choose(key):
        act = seen.algorithm.act
        return [
            act(seen.learner, key, view, carry, clock(1e4), greedy).action
            for greedy in (True, False)
        ]

    ones, others = choose(jax.random.key(1)), choose(jax.random.key(2))
    assert bits(ones[0]) == bits(others[0]) and bits(ones[1]) != bits(others[1])


def test_trap_21_greedy_evaluation_does_not_depend_on_the_noise_of_the_day():
    seen = studied("ddpg", noise=0.9, epsilon=0.9)
    evaluator = Evaluator(mortal(), {TEAM: seen.algorithm}, 4, True)
    rows = [evaluator({TEAM: seen.learner}, 0, clock(steps)) for steps in (0, 1e6)]
    assert bits(rows[0]) == bits(rows[1])


def test_warmup_tries_anything():
    """Before learning begins actions are uniform over what is allowed, whatever the policy says."""
    algorithm = build("ddpg", REAL, **(TINY | OFF | {"warmup": 100}))
    policy = Deterministic(jnp.full((4000, 1, 2, 2), 9.0), jnp.array([[True, True], [True, False]]))
    early, late = (
        np.asarray(algorithm.explore(policy, jax.random.key(0), policy.legal, clock(s)))
        for s in (99, 100)
    )
    assert (
        np.abs(early.mean((0, 1)))[[0, 0, 1], [0, 1, 0]].max() < 0.05 and not early[..., 1, 1].any()
    )
    assert early.std((0, 1))[0] == pytest.approx(1 / 3**0.5, abs=0.02)
    assert late[..., 0].min() > -0.2 and not late[..., 1, 1].any()


# -- targets ---------------------------------------------------------------------------------------


def ahead(seen: Studied, learner: Any = None, key: int = 0, algorithm: Any = None) -> np.ndarray:
    algorithm = algorithm or seen.algorithm
    rivals = jnp.zeros((*seen.batch.context.view.first.shape, 0))
    return np.asarray(
        call(
            lambda one: algorithm.next_values(one, seen.batch.context, rivals, jax.random.key(key)),
            learner or seen.learner,
        )
    )


def chosen_ahead(
    name: str, env: str, key: int = 0, learner: Any = None, **settings: Any
) -> np.ndarray:
    """`[T+1,B,N,A]` the actions a deterministic member's target critics are asked about."""
    seen = studied(name, GAMES[env])
    algorithm = build(name, GAMES[env], **(TINY | OFF | settings))
    algorithm.q = lambda critics, context: [context.action[..., None]]
    return ahead(seen, learner, key, algorithm)


@pytest.mark.parametrize("name", DETERMINISTIC)
@pytest.mark.parametrize("env", GAMES)
def test_trap_22_targets_ask_about_what_the_target_policies_would_do(name, env):
    """Exactly what acting greedily with the target's weights gives, on its way through the game's
    units."""
    seen = studied(name, GAMES[env])
    learner = altered(seen.learner, "actor", "target", 0.3)
    ours = chosen_ahead(name, env, learner=learner, smoothing=0.0)
    view, algorithm = seen.batch.window.view, seen.algorithm
    acting = learner._replace(params=learner.target)

    @jax.jit
    def acts(one: Any, now: Any) -> Any:
        carry = algorithm.carry(one, 8)
        action = algorithm.act(one, jax.random.key(0), now, carry, clock(), True).action
        return as_input(action, algorithm.spec)

    for t in range(7):
        now = jax.tree.map(lambda x, t=t: x[t], view)
        expected = acts(acting, now) * np.asarray(now.alive)[..., None]
        np.testing.assert_allclose(ours[t], expected, atol=1e-5)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_trap_21_targets_are_without_noise(name):
    """Arg-max where actions are discrete; smoothing is for continuous ones, and only where asked
    for."""
    assert bits(chosen_ahead(name, "discrete", 0)) == bits(chosen_ahead(name, "discrete", 1))
    plain = [bits(chosen_ahead(name, "continuous", key, smoothing=0.0)) for key in (0, 1)]
    smooth = [bits(chosen_ahead(name, "continuous", key, smoothing=0.2)) for key in (0, 1)]
    assert plain[0] == plain[1] and smooth[0] != smooth[1]
    hot = chosen_ahead(name, "discrete")
    assert (
        set(np.unique(hot)) == {0.0, 1.0}
        and (hot.sum(-1) == studied(name).batch.window.view.alive).all()
    )


def test_smoothing_stays_within_the_bounds_and_clips_its_noise():
    plain, smooth = (chosen_ahead("td3", "continuous", smoothing=size) for size in (0.0, 0.4))
    assert np.abs(smooth).max() <= 1.0 and np.abs(smooth - plain).max() <= 1.0 + 1e-6  # 2.5 x 0.4
    assert np.abs(smooth - plain).max() > 0.5 and not smooth[..., 1, 1].any()
    edge = altered(studied("td3", REAL).learner, "actor", "target", 5.0)  # a policy at its bounds
    swayed = chosen_ahead("td3", "continuous", learner=edge, smoothing=0.4)
    assert np.abs(swayed).max() <= 1.0


def stirred(learner: Any, field: str) -> Any:
    """Other actors: every weight by itself, so that discrete actions become others too."""
    rng, nets = np.random.default_rng(0), getattr(learner, field)
    actor = jax.tree.map(
        lambda x: np.float32(x + 0.4 * rng.standard_normal(x.shape)), nets["actor"]
    )
    return learner._replace(**{field: nets | {"actor": actor}})


@pytest.mark.parametrize("env", GAMES)
@pytest.mark.parametrize("name", PATHWISE)
def test_trap_22_the_next_joint_action_is_the_target_policies(name, env):
    """But SAC's, which keeps no target policy."""
    seen = studied(name, GAMES[env])
    plain = ahead(seen)
    moved = {"online": stirred(seen.learner, "params")}
    if name not in SOFT:
        moved["target"] = stirred(seen.learner, "target")
    changes = {
        which: not np.allclose(ahead(seen, learner), plain, atol=1e-6)
        for which, learner in moved.items()
    }
    assert changes == ({"online": True} if name in SOFT else {"online": False, "target": True})
    critic = altered(seen.learner, "critic", "params")
    np.testing.assert_array_equal(ahead(seen, critic), plain)


def raised(seen: Studied, critic: int, by: float) -> Any:
    """One of the target critics thinks better of everything."""
    critics = list(seen.learner.target["critic"])
    out = critics[critic].out
    leaves, tree = jax.tree.flatten(out)
    leaves = [leaves[0], leaves[1] + by]  # weight and bias
    critics[critic] = jax.tree.unflatten(
        jax.tree.structure(critics[critic]),
        [
            *jax.tree.leaves(critics[critic])[: -len(leaves)],
            *jax.tree.leaves(jax.tree.unflatten(tree, leaves)),
        ],
    )
    return seen.learner._replace(target=seen.learner.target | {"critic": tuple(critics)})


@pytest.mark.parametrize("env", GAMES)
@pytest.mark.parametrize("name", ["td3", "matd3", "sac", "masac"])
def test_of_twin_critics_the_lower_is_believed(name, env):
    seen = studied(name, GAMES[env])
    assert (
        len(seen.learner.target["critic"]) == 2
        and len(studied("ddpg").learner.target["critic"]) == 1
    )
    low = [ahead(seen, raised(seen, critic, -100.0)) for critic in (0, 1)]
    high = [ahead(seen, raised(seen, critic, 100.0)) for critic in (0, 1)]
    np.testing.assert_allclose(high[1], low[0] + 100, atol=1e-3)  # both are the first critic's word
    np.testing.assert_allclose(high[0], low[1] + 100, atol=1e-3)
    plain = ahead(seen)
    for doubted, praised in zip(low, high, strict=True):
        assert (doubted < plain - 50).all() and (praised < plain + 50).all()
    assert np.abs(high[0] - high[1]).max() > 1e-3


# -- the actor's step ------------------------------------------------------------------------------


@pytest.mark.parametrize("illegal", [30.0, -1e6])
def test_trap_23_the_penalty_sees_no_illegal_logit(illegal):
    algorithm = studied("ddpg").algorithm
    logits, tempted = jnp.asarray(LOGITS), jnp.where(LEGAL, LOGITS, illegal)
    ours, theirs = (
        jax.value_and_grad(lambda x: algorithm.saturation(choice(x)).sum())(x)
        for x in (logits, tempted)
    )
    assert_close(ours, theirs, 1e-6)
    expected = [(LOGITS[i][LEGAL[i]] ** 2).mean() for i in range(5)]
    np.testing.assert_allclose(algorithm.saturation(choice(tempted)), expected, rtol=1e-5)
    nothing = Relaxed(logits, jnp.zeros_like(LEGAL), logits)
    assert not np.any(algorithm.saturation(nothing))


def test_trap_23_the_penalty_of_real_actions_is_of_what_is_squashed():
    algorithm = studied("ddpg", REAL).algorithm
    point = Deterministic(
        jnp.array([[[2.0, 100.0]], [[-1.0, 3.0]]]), jnp.array([[[True, False]], [[True, True]]])
    )
    np.testing.assert_allclose(algorithm.saturation(point), [[4.0], [5.0]])


def trail(seen: Studied, steps: int = 4, **settings: Any) -> list:
    """Learners after 0, 1, … gradient steps on one batch."""
    name, env = (
        seen.algorithm.name,
        REAL if isinstance(seen.algorithm.spec.action, Box) else mortal(),
    )
    algorithm = build(name, env, **(TINY | OFF | settings))

    def improve(state, key):
        learner = algorithm.improve(state, seen.batch, key, clock())[0]
        return learner, learner

    learners = call(
        lambda learner: jax.lax.scan(improve, learner, jax.random.split(jax.random.key(0), steps))[
            1
        ],
        seen.learner,
    )
    return [seen.learner, *(jax.tree.map(lambda x, k=k: x[k], learners) for k in range(steps))]


@pytest.mark.parametrize("name", ["td3", "matd3"])
def test_the_actor_and_the_targets_wait_while_the_critic_learns(name):
    """Every second step by default, of the critic's; the first is not the actor's."""
    learners = trail(studied(name))
    for k, (before, after) in enumerate(pairwise(learners), 1):
        turn = k % 2 == 0
        assert bits(before.params["critic"]) != bits(after.params["critic"])
        assert (bits(before.params["actor"]) != bits(after.params["actor"])) == turn
        assert (bits(before.opt["actor"]) != bits(after.opt["actor"])) == turn
        assert (bits(before.target) != bits(after.target)) == turn
        assert after.updates == k


def test_actor_and_critic_have_learning_rates_of_their_own():
    """Adam's first step is as long as its rate."""
    before, after = trail(studied("ddpg"), 1, lr=1e-3, critic_lr=0.1)
    for part, rate in (("actor", 1e-3), ("critic", 0.1)):
        pairs = zip(
            jax.tree.leaves(before.params[part]), jax.tree.leaves(after.params[part]), strict=True
        )
        assert max(np.abs(a - b).max() for a, b in pairs) == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize(
    ("name", "env", "aim"),
    [("sac", "discrete", "entropy"), ("masac", "continuous", "entropy_per_dimension")],
)
def test_the_temperature_moves_towards_the_entropy_aimed_at(name, env, aim):
    """Up where the policy is not random enough, down where it is too random; not at all with a rate
    of 0."""
    seen = studied(name, GAMES[env])
    start = seen.learner.params["alpha"]
    assert start == pytest.approx(np.log(0.1))
    less, more, kept = (
        trail(seen, 2, alpha_lr=rate, **{aim: entropy})[-1].params["alpha"]
        for entropy, rate in ((-5.0, 0.01), (5.0, 0.01), (5.0, 0.0))
    )
    assert less == pytest.approx(start - 0.02, abs=1e-3) and more == pytest.approx(
        start + 0.02, abs=1e-3
    )
    assert kept == start


@pytest.mark.parametrize("env", ["discrete", "continuous"])
def test_each_agent_may_have_its_own_temperature(env):
    """While all are equal, losses are those of one for all, and its gradient is their sum."""
    seen = studied("masac", GAMES[env])
    own = build("masac", GAMES[env], **(TINY | OFF | {"alpha_sharing": "own"}))
    actor = seen.learner.params["actor"]

    def grads(algorithm: Any, alpha: Any) -> Any:
        params = {"actor": actor, "alpha": alpha}
        learner = seen.learner._replace(params={**seen.learner.params, **params})
        losses = jax.value_and_grad(algorithm.actor_loss, has_aux=True)
        (loss, _), found = losses(params, learner, seen.batch, jax.random.key(0))
        return loss, found

    start = own.nets(np.random.default_rng(0))["alpha"]
    assert start.shape == (2,) and start.tolist() == [np.float32(np.log(np.float32(0.1)))] * 2
    (loss, one), (same, each) = call(
        lambda: (grads(seen.algorithm, seen.learner.params["alpha"]), grads(own, start))
    )
    assert same == pytest.approx(loss, rel=1e-5)
    assert each["alpha"].sum() == pytest.approx(one["alpha"], rel=1e-4)
    assert each["alpha"][0] != each["alpha"][1]
    assert_close(each["actor"], one["actor"], 1e-5)


def test_the_temperatures_of_hasac_are_the_actors():
    assert build("hasac", GAMES["discrete"]).alpha_owner == (0, 1)
    with pytest.raises(ShoalError, match="alpha_sharing cannot be 'shared': leave it empty"):
        build("hasac", GAMES["discrete"], alpha_sharing="shared")


# -- SAC -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOFT)
def test_trap_16_the_discrete_expectation_is_over_the_legal_actions(name):
    """Σ π(a) (Q(a) − α log π(a)), by hand; a huge Q of an illegal action is nothing."""
    seen = studied(name)
    algorithm = build(name, mortal(), **(TINY | OFF))
    context = seen.batch.context
    legal = np.asarray(context.view.legal)
    table = np.random.default_rng(0).normal(size=legal.shape).astype(np.float32)
    algorithm.q = lambda critics, context: [
        jnp.asarray(np.where(legal, table, 1e6)),
        jnp.asarray(table + 5),
    ]
    actor = altered(seen.learner, "actor", by=0.3)
    policy, _ = algorithm.policy(
        actor.params["actor"], context, algorithm.start(actor.params["actor"], context)
    )
    probs = np.exp(np.asarray(policy.log_probs, np.float64))
    assert not probs[~legal].any()
    alpha = np.broadcast_to(np.exp(algorithm.log_alpha(actor.params)), 2)
    expected = np.zeros(legal.shape[:-1])
    for place in np.ndindex(*expected.shape):
        for a in np.flatnonzero(legal[place]):
            p = probs[place][a]
            expected[place] += p * (table[place][a] - alpha[place[-1]] * np.log(p))
    np.testing.assert_allclose(ahead(seen, actor, 0, algorithm), expected, atol=1e-4)


@pytest.mark.parametrize("name", SOFT)
def test_the_continuous_expectation_has_the_entropy_of_the_living(name):
    """min Q − α log π of a draw; a critic of the whole team counts every living agent's."""
    seen = studied(name, REAL, reward="mean", alpha=0.5)
    algorithm = build(name, REAL, **(TINY | OFF | {"reward": "mean", "alpha": 0.5}))
    rows = 1 if algorithm.team_critic else 2
    assert algorithm.team_critic == algorithm.central
    algorithm.q = lambda critics, context: [jnp.zeros((7, 8, rows, 1))] * 2
    dead = seen.batch.context.view._replace(
        alive=np.array(seen.batch.context.view.alive) & [True, False]
    )
    seen = seen._replace(batch=seen.batch._replace(context=seen.batch.context._replace(view=dead)))
    actor = seen.learner.params["actor"]
    policy, _ = algorithm.policy(
        actor, seen.batch.context, algorithm.start(actor, seen.batch.context)
    )
    density = np.asarray(policy.log_prob(policy.sample(jax.random.key(3))))
    expected = -0.5 * density * [1, 0]
    if algorithm.team_critic:
        expected = expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(ahead(seen, None, 3, algorithm), expected, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("how", quick([{"lam": 0.8}, {"n_step": 4}, {}], 2), ids=str)
@pytest.mark.parametrize(
    "env", [Endless(n=1, length=10), Drifting(n=1, length=10)], ids=["discrete", "continuous"]
)
@pytest.mark.parametrize("name", ["sac", "masac"])
def test_trap_31_every_step_of_a_target_earns_its_entropy(name, env, how):
    """Reward 1 for ever, γ 0.8, α 0.5: Q = (1 + γαH) / (1 - γ), with two actions alike 6.386."""
    fixed = {
        "gamma": 0.8,
        "alpha": 0.5,
        "alpha_lr": 0.0,
        "tau": 0.1,
        "anneal": False,
        "lr": 1e-3,
        "critic_lr": 1e-2,
    }
    algorithm = build(name, env, **(TINY | OFF | {"capacity": 10_000} | fixed | how))
    state, _ = run(Loop(env, {TEAM: algorithm}, games=4, window=6, steps=10_000), 300)
    learner, context = state.learners[TEAM], studied(name, env).batch.context

    def told() -> tuple[Array, Array]:
        actor = learner.params["actor"]
        policy, _ = algorithm.policy(actor, context, algorithm.start(actor, context))
        draws = jax.vmap(policy.sample)(jax.random.split(jax.random.key(0), 1000))
        batch = studied(name, env).batch
        q = algorithm.q(learner.params["critic"], algorithm.played(batch, batch.window.rivals))[0]
        return q, -jax.vmap(policy.log_prob)(draws).mean()

    q, entropy = call(told)
    assert entropy == pytest.approx(np.log(2), abs=0.03)
    assert np.median(q) == pytest.approx((1 + 0.8 * 0.5 * entropy) / 0.2, abs=0.1)


def soft_return(t: int, left: int, lam: float, gamma: float, *stream: np.ndarray) -> float:
    """Of the step at `t` and at most so many more, `left`, each trusted by `lam`; columns of the
    stream by time."""
    reward, discount, valid, values, bonus = stream
    on = left > 1 and t + 1 < len(reward) and valid[t + 1]
    further = (
        bonus[t + 1] + soft_return(t + 1, left - 1, lam, gamma, *stream) if on else values[t + 1]
    )
    return reward[t] + gamma * discount[t] * ((1 - lam) * values[t + 1] + lam * further)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "left", "lam"), [({"lam": 0.7}, 99, 0.7), ({"n_step": 3}, 3, 1.0)], ids=str
)
@pytest.mark.parametrize("env", GAMES)
@pytest.mark.parametrize("name", ["sac", "masac"])
def test_trap_31_soft_targets_by_hand(name, env, how, left, lam):
    """α·entropy at every instant a return passes, ends of episodes and deaths included."""
    seen = studied(name, GAMES[env], reward="mean", alpha=0.5, gamma=0.9, **how)
    algorithm, batch, key = seen.algorithm, seen.batch, jax.random.key(3)
    policy, raw = algorithm.drawn(seen.learner, batch.context, key)
    entropy = policy.entropy() if env == "discrete" else -policy.log_prob(raw)
    bonus = 0.5 * np.asarray(entropy) * batch.context.view.alive
    if algorithm.team_critic:
        bonus = bonus.sum(-1, keepdims=True)
    values, expected = ahead(seen, None, 3), np.zeros(bonus[:-1].shape)
    valid = np.broadcast_to(batch.window.valid, batch.reward.shape)
    for t, b, i in np.ndindex(*expected.shape):
        stream = (x[:, b, i] for x in (batch.reward, batch.discount, valid, values, bonus))
        expected[t, b, i] = soft_return(t, left, lam, 0.9, *stream)
    ours = call(lambda: algorithm.critic_targets(seen.learner, batch, key))
    counted = batch.window.valid[..., 0]
    assert not counted.all() and ours.shape == expected.shape
    np.testing.assert_allclose(ours[counted], expected[counted], atol=1e-4)


# -- whose critic ----------------------------------------------------------------------------------


def shapes(name: str, env: Any, team: str = TEAM, **settings: Any) -> tuple:
    """Of a critic's answers and of the target's, for 6 transitions of 8 windows."""
    seen = studied(name, env, team, **settings)
    algorithm = seen.algorithm
    rivals = seen.batch.window.rivals
    later = np.zeros((7, 8, rivals.shape[-1]), np.float32)

    def whole():
        answers = algorithm.q(seen.learner.params["critic"], algorithm.played(seen.batch, rivals))
        return answers[0], algorithm.next_values(
            seen.learner, seen.batch.context, later, jax.random.key(0)
        )

    answer, expected = jax.eval_shape(whole)
    return answer.shape, expected.shape


@pytest.mark.slow
def test_one_value_serves_a_team_that_shares_reward_and_critic():
    env = make("test/mortal", n=3)
    assert shapes("maddpg", env, reward="mean") == ((6, 8, 1, 1), (7, 8, 1))
    assert shapes("maddpg", env, reward="own") == ((6, 8, 3, 1), (7, 8, 3))
    assert shapes("maddpg", env, reward="sum", critic_sharing="own") == ((6, 8, 3, 1), (7, 8, 3))
    assert shapes("ddpg", env, reward="mean") == ((6, 8, 3, 1), (7, 8, 3))
    assert shapes("masac", env, reward="mean") == ((6, 8, 3, 3), (7, 8, 3))
    assert shapes("masac", Skewed(n=3, length=5), reward="mean") == ((6, 8, 1, 1), (7, 8, 1))


def test_a_critic_of_the_team_learns_what_each_agents_copy_would():
    """The same weights asked once or for every agent: one loss, one gradient."""
    seen = studied("maddpg", reward="mean")
    assert seen.algorithm.team_critic
    single = call(
        lambda b: seen.algorithm.critic_loss(
            seen.learner.params, seen.learner, b, jax.random.key(0)
        ),
        seen.batch,
    )
    seen.algorithm.team_critic = False
    try:
        each = call(
            lambda b: seen.algorithm.critic_loss(
                seen.learner.params, seen.learner, b, jax.random.key(0)
            ),
            seen.batch,
        )
    finally:
        seen.algorithm.team_critic = True
    assert_close(single, each, 1e-5)


@pytest.mark.parametrize(
    ("name", "sharing"), [*((name, "shared") for name in CENTRAL), ("maddpg", "own")]
)
def test_each_agents_own_reward_is_its_central_critics(name, sharing):
    """Endless, at γ = 0.5: 2 for one, -2 for the other."""
    env = Opposed(n=2, length=5)
    own = {"alpha": 0.05, "alpha_lr": 0.0} if name == "masac" else {"epsilon": 1.0}
    settings = (
        TINY
        | OFF
        | {"gamma": 0.5, "tau": 0.2, "anneal": False, "reward": "own", "sharing": sharing}
    )
    algorithm = build(name, env, **settings, **own)
    state, _ = run(Loop(env, {TEAM: algorithm}, games=4, window=6, steps=10_000), 150)
    learner, seen = state.learners[TEAM], studied(name, env)
    q = call(
        lambda: algorithm.q(
            learner.params["critic"], algorithm.played(seen.batch, seen.batch.window.rivals)
        )[0]
    )
    # but for what a policy has ceased to try
    assert np.median(q[..., 0, :]) == pytest.approx(2.0, abs=0.2)
    assert np.median(q[..., 1, :]) == pytest.approx(-2.0, abs=0.2)


def test_a_critic_may_see_the_rivals_too():
    """The three adversaries of simple_tag and the prey's five moves."""
    env = make("mpe/simple_tag")
    spec = env.teams["adversary"]
    assert spec.rivals == 5
    widths = {}
    for rivals in (False, True):
        seen = studied("maddpg", env, "adversary", windows=2, rivals=rivals)
        widths[rivals] = seen.learner.params["critic"][0].torso.layers[0].weight.shape[1]
    seen = spec.state + spec.obs + 3  # the state, what it sees itself, who it is
    assert widths == {False: seen + 15, True: seen + 15 + 5}
    assert shapes("maddpg", env, "adversary", windows=2, rivals=True) == ((6, 8, 3, 1), (7, 8, 3))


def test_rivals_reach_the_critics_loss_now_and_ahead():
    seen = studied("maddpg", make("mpe/simple_tag"), "adversary", windows=2, rivals=True)
    parts = {"critic": seen.learner.params["critic"]}

    def loss(batch):
        return seen.algorithm.critic_loss(parts, seen.learner, batch, jax.random.key(0))[0]

    flipped = seen.batch._replace(
        window=seen.batch.window._replace(rivals=1 - seen.batch.window.rivals)
    )
    later = seen.batch._replace(rivals_after=1 - seen.batch.rivals_after)
    plain, now, after = call(
        lambda *batches: [loss(one) for one in batches], seen.batch, flipped, later
    )
    assert len({round(float(x), 6) for x in (plain, now, after)}) == 3


@pytest.mark.slow
def test_a_run_against_rivals_who_are_seen():
    env = make("mpe/simple_tag")
    settings = TINY | OFF | {"rivals": True}
    kinds = {
        "adversary": build("maddpg", env, "adversary", **settings),
        "agent": build("random", env, "agent"),
    }
    state, metrics = run(Loop(env, kinds, games=4, window=10, steps=1000), 2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.learners, metrics)))
    assert (
        state.learners["adversary"].updates == 4
        and state.memories["adversary"].ring.rivals.shape[-1] == 5
    )


@pytest.mark.parametrize("name", ["ddpg", "td3", "sac"])
def test_agents_with_critics_of_their_own_see_no_rivals(name):
    with pytest.raises(ShoalError, match="set rivals to False"):
        build(name, mortal(), rivals=True)


# -- equivalences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "env"),
    [
        (("ddpg", "maddpg"), make("test/identity", n=1, length=5)),
        (("td3", "matd3"), Skewed(n=1, length=5)),
    ],
    ids=["discrete", "continuous"],
)
def test_trap_30_the_central_form_of_one_agent_whose_state_is_its_observation_is_the_plain_one(
    pair, env
):
    """With a reward of the team's: with one of its own, a central critic is shown beside the state
    what it sees."""
    learners = []
    for name in pair:
        algorithm = build(name, env, reward="mean", **TINY, **OFF)
        learners.append(
            run(Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000), 3)[0].learners[TEAM]
        )
    assert_close(*learners, 1e-5)


@pytest.mark.slow
def test_ddpg_with_its_tricks_is_td3():
    """A variant by switching on: the same learner to the bit."""
    env = make("test/identity", n=1, length=5)
    tricks = {"twin": True, "delay": 2, "smoothing": 0.2, "target_every": 2}
    learners = []
    for name, settings in (("td3", {}), ("ddpg", tricks)):
        algorithm = build(name, env, **TINY, **OFF, **settings)
        learners.append(
            run(Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000), 3)[0].learners[TEAM]
        )
    assert bits(learners[0]) == bits(learners[1])


# -- the dead --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PATHWISE)
def test_trap_11_what_the_dead_see_and_do_influences_nobody(name):
    """With rewards of their own: the critic's and the actor's losses and gradients are the same."""
    seen = studied(name, reward="own")
    view, window = seen.batch.window.view, seen.batch.window
    dead = ~np.asarray(view.alive)
    other = view._replace(
        obs=np.where(dead[..., None], 7.0, np.asarray(view.obs)).astype(np.float32)
    )
    action = np.where(dead[:-1], (np.asarray(window.action) + 1) % 3, np.asarray(window.action))
    haunted = seen.batch._replace(
        window=window._replace(view=other, action=action),
        context=seen.batch.context._replace(view=other),
    )
    key, params = jax.random.key(0), dict(seen.learner.params)
    actor = {part: net for part, net in params.items() if part != "critic"}

    def slopes(batch):
        critic = jax.grad(seen.algorithm.critic_loss, has_aux=True)(
            {"critic": params["critic"]}, seen.learner, batch, key
        )
        return critic, jax.grad(seen.algorithm.actor_loss, has_aux=True)(
            actor, seen.learner, batch, key
        )

    plain, after = call(lambda a, b: (slopes(a), slopes(b)), seen.batch, haunted)
    assert_close(after, plain, 1e-5)
    assert dead[:-1].any()

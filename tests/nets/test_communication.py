"""Messages between agents: who gets them, from whom, and what is left without them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, quick

from shoal.algorithms import find
from shoal.errors import ShoalError
from shoal.nets import torsos
from shoal.nets.inputs import Context, heard
from shoal.nets.mlp import Style
from shoal.types import Discrete, Spec, View

TORSOS = [name for name in torsos.TORSOS if torsos.alone(name)]
TANH = Style("tanh", layer_norm=False)
TIME, GAMES, AGENTS, OBS, HIDDEN = 3, 2, 3, 4, 8
SPEC = Spec(("a", "b", "c"), obs=OBS, state=4, action=Discrete(3))


def torso(name: str, owner: tuple[int, ...] = (0,) * AGENTS, rounds: int = 1) -> Any:
    return torsos.find(name)(np.random.default_rng(0), owner, OBS, HIDDEN, 2, TANH, rounds=rounds)  # type: ignore[call-arg]


def seen(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(TIME, GAMES, AGENTS, OBS)).astype(np.float32)


def features(net: Any, obs: np.ndarray, alive: np.ndarray | None = None) -> np.ndarray:
    agents = obs.shape[2]
    hears = np.ones((TIME, GAMES, 1, agents), np.float32) if alive is None else alive
    return np.asarray(forward(net, obs, np.broadcast_to(hears, (*obs.shape[:3], agents))))


@jax.jit
def forward(net: Any, obs: jax.Array, hears: jax.Array) -> jax.Array:
    first = jnp.zeros((TIME, GAMES), bool)
    return net((obs, hears), net.carry(GAMES, obs.shape[2]), first)[0]


def without(agent: int) -> np.ndarray:
    hears = np.ones((TIME, GAMES, 1, AGENTS), np.float32)
    hears[..., agent] = 0
    return hears


@pytest.mark.parametrize("owners", quick([1, AGENTS], 1))
@pytest.mark.parametrize("name", TORSOS)
def test_a_message_arrives_unless_its_sender_is_not_heard(name: str, owners: int):
    net = torso(name, tuple(agent % owners for agent in range(AGENTS)))
    before, after = seen(), seen()
    after[:, :, 1] += 1
    changed = np.abs(features(net, before) - features(net, after)).max((0, 1, 3))
    assert (changed > 1e-4).all(), "everybody hears agent 1"
    deaf = without(1)
    changed = np.abs(features(net, before, deaf) - features(net, after, deaf)).max((0, 1, 3))
    assert changed[1] > 1e-4 and changed[[0, 2]].max() == 0.0


@pytest.mark.parametrize("name", TORSOS)
def test_a_second_round_carries_on_what_a_first_one_brought(name: str):
    """Agent 0 hears 1, and 1 hears 2: so 2 reaches 0 in two rounds only."""
    chain = np.zeros((TIME, GAMES, AGENTS, AGENTS), np.float32)
    chain[..., 0, 1] = chain[..., 1, 2] = 1
    before, after = seen(), seen()
    after[:, :, 2] += 1
    for rounds, reached in ((1, False), (2, True)):
        net = torso(name, rounds=rounds)
        changed = np.abs(features(net, before, chain) - features(net, after, chain))[:, :, 0].max()
        assert (changed > 1e-6) == reached, rounds


@pytest.mark.parametrize("name", TORSOS)
def test_agents_that_change_places_change_features(name: str):
    net, obs, order = torso(name, rounds=2), seen(), [2, 0, 1]
    assert_close(features(net, obs)[:, :, order], features(net, obs[:, :, order]), 1e-5)


@pytest.mark.parametrize("name", TORSOS)
def test_one_agent_is_an_agent_that_hears_nobody(name: str):
    obs = seen()
    nobody = np.zeros((TIME, GAMES, 1, AGENTS), np.float32)
    alone = features(torso(name, (0,)), obs[:, :, :1])
    assert_close(features(torso(name), obs, nobody)[:, :, :1], alone, 1e-5)


def test_a_gate_that_is_shut_sends_nothing_and_still_learns():
    net, before, after = torso("ic3net"), seen(), seen()
    after[:, :, 1] += 1

    gate = net.rounds[0].gate
    shut = eqx.tree_at(lambda one: one.rounds[0].gate.bias, net, gate.bias - 5)
    assert_close(features(shut, before)[:, :, 0], features(shut, after)[:, :, 0], 1e-6)
    hears = np.ones((TIME, GAMES, AGENTS, AGENTS), np.float32)
    grads = jax.grad(lambda one: forward(one, before, hears).sum())(shut)
    assert np.abs(np.asarray(grads.rounds[0].gate.bias)).max() > 0


def view(obs: np.ndarray, alive: np.ndarray) -> View:
    nothing: Any = jnp.zeros(())
    return View(jnp.asarray(obs), nothing, nothing, jnp.asarray(alive), *(nothing,) * 3)


def test_the_living_and_near_are_heard():
    obs = np.zeros((1, 1, AGENTS, OBS), np.float32)
    obs[0, 0, :, 2] = (0.0, 3.0, 4.0)  # agents' places are numbers 2 and 3
    alive = np.array([[[True, True, False]]])
    context = Context(view(obs, alive), jnp.zeros(()))
    everybody = heard(0.0, ()).read(context, SPEC)
    assert everybody.tolist() == [[[[1, 1, 0]]]]
    near = heard(3.5, (2, 3)).read(context, SPEC)
    assert near[0, 0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 1, 0]]
    assert heard(2.0, (2, 3)).read(context, SPEC)[0, 0, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"near": 1.0, "position": "2,3"}, "near is for torsos that communicate"),
        ({"near": 1.0, "torso": "commnet"}, "near needs to know where agents are"),
        ({"torso": "commnet", "position": "x"}, "position must be whole numbers"),
        ({"torso": "commnet", "rounds": 0}, "rounds must be greater than 0"),
        ({"torso": "commnet", "near": 1.0, "position": "2,4"}, "lies outside"),
        ({"torso": "comnet"}, "did you mean 'commnet'"),
    ],
)
def test_what_cannot_be_heard_is_refused(options: dict[str, Any], wrong: str):
    kind = find("ppo")
    with pytest.raises(ShoalError, match=wrong):
        kind(kind.Config(**options), SPEC)

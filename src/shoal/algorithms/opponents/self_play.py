"""Self-play: an opponent made of another team's past selves.

Playing snapshots instead of the newest self alone: Bansal et al., "Emergent Complexity via
Multi-Agent Competition" (2018). Preferring those that still win: prioritised fictitious self-play,
Vinyals et al. (2019). Drawing from an equilibrium of the game between snapshots: policy-space
response oracles, Lanctot et al. (2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ...errors import ShoalError, did_you_mean
from ...learning.metagame import symmetric_nash
from ...learning.reduce import AXIS, total
from ...nets.layers import Rng
from ...types import Clock, Decision, Fit, Results, Share, View
from ..base import Algorithm, Metrics, at_most, divisor, positive
from .frozen import why_incompatible
from .random import Fixed

SCALE = math.log(10) / 400  # Elo scale: 400 points are odds of 10 to 1
# most Elo points at stake in one game, and in all games of one iteration
PER_GAME = 16.0
AT_ONCE = 128.0
UNMEASURED = 0.1  # share of opponents that `nash` draws uniformly
RECENT = 1000.0  # games after which a snapshot's record decays


@dataclass(frozen=True)
class SelfPlayConfig:
    """Settings of a pool of past selves."""

    rule: Literal["latest", "uniform", "prioritised", "nash"] = "uniform"
    """Who is drawn: the newest snapshot, any alike, each in proportion to how often it beats the
    current self, or by an equilibrium of the game between all snapshots."""
    of: str = ""
    """Team whose past selves play; empty takes the only other one."""
    pool: int = 20
    """Snapshots kept; a new one then takes the oldest one's place."""
    every: int = 10
    """Iterations between two snapshots."""
    period: int = 10
    """Iterations after which opponents are drawn anew; episodes longer than that are never
    rated."""
    groups: int = 4
    """Opponents at a time: each device's games are split evenly between so many."""

    def __post_init__(self) -> None:
        positive(self, "pool", "every", "period", "groups")
        at_most(self, 1000, "pool", "groups")


class Pool(NamedTuple):
    """The learner, equal on all devices: K rated snapshots, and the G that play now."""

    selves: Any  # [K,…] snapshots of what acting needs of the followed learner
    taken: Array  # [] int32 snapshots taken so far, including the untrained one at the start
    # [K,3] wins, ties and losses of the current policy against each, in about the last RECENT games
    record: Array
    rating: Array  # [K] Elo of each snapshot
    current: Array  # [] Elo of the current policy
    win_rate: Array  # [] of the current policy, when last measured
    slot: Array  # [G] int32 snapshot that plays in each group; K once it was replaced in the pool
    playing: Any  # [G,…] those snapshots, ready to act
    whole: Array  # [games] bool: the current episode had only one opponent; games of all devices
    key: Array  # [2] uint32
    iterations: Array  # [] int32
    # [K,K] share of games won minus lost by a row's snapshot against a column's; kept for `nash`
    payoff: Array | None = None


class SelfPlay(Fixed[SelfPlayConfig, Pool, Any]):
    """Plays past selves of another team, and rates both. It learns nothing itself."""

    name = "past"
    Config = SelfPlayConfig
    bears_staleness = False  # ratings belong to the opponent that played the window

    def join(self, team: str, everybody: dict[str, Algorithm], games: int, origin: Any) -> None:
        others = [other for other in everybody if other != team]
        of = self.config.of or (others[0] if len(others) == 1 else "")
        if of not in others:
            problem = (
                f"there is no other team {of!r}{did_you_mean(of, others)}"
                if of
                else f"{len(others)} other teams play"
            )
            raise ShoalError(
                f"past cannot tell whose past selves to play for {team!r}, as {problem}: set of"
            )
        self.team = team
        self.of = of
        self.games = games
        self.player = everybody[of]
        if isinstance(self.player, Fixed):
            raise ShoalError(
                f"past plays past selves of a team that learns, but {of!r} plays {self.player.name}"
            )
        wrong = why_incompatible(self.spec, self.player.spec)
        if wrong:
            raise ShoalError(f"past selves of team {of!r} cannot play for {team!r}: {of!r} {wrong}")

    @property
    def sees_mates(self) -> bool:
        return self.player.sees_mates

    @classmethod
    def suited(cls, config: SelfPlayConfig, share: Share) -> list[Fit]:
        groups = divisor(share.games, config.groups)
        return (
            [Fit("groups", groups, f"{share.games} games on each device")]
            if groups != config.groups
            else []
        )

    def check(self, share: Share) -> None:
        if share.games % self.config.groups:
            raise ShoalError(
                f"{share.games} games on each device cannot be split evenly between"
                f" {self.config.groups} past selves:"
                " change groups or games"
            )

    def init(self, rng: Rng) -> Pool:
        c = self.config
        untrained = self.player.acting(self.player.init(rng))
        return Pool(
            selves=_repeated(untrained, c.pool),
            taken=jnp.int32(1),
            record=jnp.zeros((c.pool, 3)),
            rating=jnp.zeros(c.pool),
            current=jnp.zeros(()),
            win_rate=jnp.float32(0.5),
            slot=jnp.zeros(c.groups, jnp.int32),
            playing=_repeated(untrained, c.groups),
            whole=jnp.ones(self.games, bool),
            key=jax.random.key_data(jax.random.key(rng.integers(2**32))),
            iterations=jnp.int32(0),
            payoff=jnp.zeros((c.pool, c.pool)) if c.rule == "nash" else None,
        )

    def acting(self, learner: Pool) -> Pool:
        return learner._replace(**dict.fromkeys(learner._fields) | {"playing": learner.playing})

    # -- acting ------------------------------------------------------------------------------------

    def carry(self, learner: Pool, games: int) -> Any:
        return self.player.carry(jax.tree.map(lambda x: x[0], learner.playing), games)

    def act(
        self, learner: Pool, key: Array, view: View, carry: Any, clock: Clock, greedy: bool
    ) -> Decision:
        """Let each group of games play its own snapshot.

        Where games do not split evenly, copies of the last game fill up the last group and are
        dropped again.
        """
        games = len(view.first)
        groups = self.config.groups
        views, carries = jax.tree.map(partial(_split, groups), (view, carry))
        decide = jax.vmap(partial(self._decide, clock, greedy))
        decided = decide(learner.playing, jax.random.split(key, groups), views, carries)
        action, carry = jax.tree.map(
            lambda x: x.reshape(-1 if x.size else games, *x.shape[2:])[:games], decided
        )
        return Decision(action, carry, ())

    def _decide(
        self, clock: Clock, greedy: bool, learner: Any, key: Array, view: View, carry: Any
    ) -> tuple[Array, Any]:
        decision = self.player.act(learner, key, view, carry, clock, greedy)
        return decision.action, decision.carry

    # -- between iterations ------------------------------------------------------------------------

    def meet(
        self, learner: Pool, learners: dict[str, Any], results: Results
    ) -> tuple[Pool, Metrics]:
        """Rate the snapshots that played; add a snapshot and draw new opponents when due."""
        c = self.config
        iteration = learner.iterations + 1
        learner, rated = self._rated(learner, results)
        learner = self._kept(
            learner, self.player.acting(learners[self.of]), iteration % c.every == 0
        )
        learner = self._drawn(learner, results.ended[-1], iteration % c.period == 0)
        filled = _filled(learner)
        metrics = {
            "elo": learner.current,
            "win_rate": learner.win_rate,
            "rated_games": rated,
            "pool": filled.sum(dtype=jnp.float32),
            "pool_elo": (learner.rating * filled).sum() / filled.sum(),
            "pool_elo_best": jnp.where(filled, learner.rating, -jnp.inf).max(),
        }
        return learner._replace(iterations=iteration), metrics

    def keep(self, learner: Pool, carry: Any) -> Any:
        """Reset the carry when opponents were just drawn: the old carry is another net's."""
        due = learner.iterations % self.config.period == 0
        fresh = (
            self.carry(learner, len(jax.tree.leaves(carry)[0])) if jax.tree.leaves(carry) else carry
        )
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), fresh, carry)

    def _rated(self, learner: Pool, results: Results) -> tuple[Pool, Array]:
        """Update the ratings; also return the number of rated games.

        Rated are episodes that had one opponent from beginning to end.
        """
        ended = results.ended
        games = ended.shape[1]
        whole = jax.lax.dynamic_slice(learner.whole, [jax.lax.axis_index(AXIS) * games], [games])
        # [T,B] also counts an episode that began in this window
        counted = ended & (whole | (jnp.cumsum(ended, 0) > ended))
        margin = results.returns[self.of] - results.returns[self.team]
        # [T,B,3] win, tie, loss
        outcome = jnp.stack([margin > 0, margin == 0, margin < 0], -1) & counted[..., None]
        who = learner.slot[jnp.arange(games) // -(-games // self.config.groups)]  # [B]
        fresh = (
            jnp.zeros_like(learner.record)
            .at[who]
            .add(outcome.sum(0, dtype=jnp.float32), mode="drop")
        )
        fresh = total(fresh)
        record = learner.record + fresh
        record = record * RECENT / jnp.maximum(record.sum(1, keepdims=True), RECENT)
        count = fresh.sum(1)
        score = fresh @ jnp.array([1.0, 0.5, 0.0])
        current, rating = elo(learner.current, learner.rating, count, score)
        rated = count.sum()
        rate = jnp.where(rated > 0, score.sum() / jnp.maximum(rated, 1), learner.win_rate)
        whole = jax.lax.all_gather(whole | ended.any(0), AXIS, tiled=True)
        return learner._replace(
            record=record, rating=rating, current=current, win_rate=rate, whole=whole
        ), rated

    def _kept(self, learner: Pool, snapshot: Any, due: Array) -> Pool:
        """Replace the oldest snapshot by `snapshot`, if due.

        Groups that still play the replaced snapshot are no longer rated.
        """
        place = learner.taken % self.config.pool
        put = partial(_put, place, due)
        if learner.payoff is not None:
            payoff = jnp.where(due, _with_row(learner, place), learner.payoff)
            learner = learner._replace(payoff=payoff)
        return learner._replace(
            selves=jax.tree.map(put, learner.selves, snapshot),
            taken=learner.taken + due,
            record=put(learner.record, jnp.zeros(3)),
            rating=put(learner.rating, learner.current),
            slot=jnp.where(due & (learner.slot == place), self.config.pool, learner.slot),
        )

    def _drawn(self, learner: Pool, opening: Array, due: Array) -> Pool:
        """Draw new opponents, if due.

        `opening [B]` marks the games whose next episode starts with them.
        """
        key, key_draw = jax.random.split(jax.random.wrap_key_data(learner.key))
        odds = jnp.log(RULES[self.config.rule](learner))
        slot = jnp.where(
            due, jax.random.categorical(key_draw, odds, shape=learner.slot.shape), learner.slot
        )
        seat = partial(jax.tree.map, lambda selves, _: selves[slot])
        playing = jax.lax.cond(
            due, seat, lambda selves, playing: playing, learner.selves, learner.playing
        )
        whole = jnp.where(due, jax.lax.all_gather(opening, AXIS, tiled=True), learner.whole)
        return learner._replace(
            slot=slot, playing=playing, whole=whole, key=jax.random.key_data(key)
        )


def elo(current: Array, rating: Array, games: Array, score: Array) -> tuple[Array, Array]:
    """Update Elo ratings after `games [K]` against each snapshot.

    `score [K]` is how many of them the current policy won; a tie is a half. With e = 1 / (1 +
    10^((rating − current) / 400)) the expected score of a game, every snapshot gives Δ = g (score −
    e · games) to the current policy. g is PER_GAME, but at most AT_ONCE / all games, so that
    ratings cannot overshoot however many games come at once. The sum of all ratings is constant.
    """
    expected = jax.nn.sigmoid((current - rating) * SCALE)
    stake = jnp.minimum(PER_GAME, AT_ONCE / jnp.maximum(games.sum(), 1.0))
    change = stake * (score - expected * games)
    return current + change.sum(), rating - change


def _filled(pool: Pool) -> Array:
    """`[K]` bool: slots that hold a snapshot."""
    return jnp.arange(len(pool.rating)) < pool.taken


def _latest(pool: Pool) -> Array:
    places = len(pool.rating)
    return (jnp.arange(places) == (pool.taken - 1) % places).astype(jnp.float32)


def _uniform(pool: Pool) -> Array:
    return _filled(pool).astype(jnp.float32)


def _prioritised(pool: Pool) -> Array:
    """The share of games that each snapshot wins, after adding one win and one loss."""
    won = pool.record @ jnp.array([0.0, 0.5, 1.0])
    return _filled(pool) * (won + 1) / (pool.record.sum(1) + 2)


def _nash(pool: Pool) -> Array:
    """An equilibrium of the game between snapshots, and a little of all: who is never drawn is
    never measured."""
    assert pool.payoff is not None, "kept for this rule"
    present = _filled(pool)
    return (1 - UNMEASURED) * symmetric_nash(pool.payoff, present) + UNMEASURED * _uniform(
        pool
    ) / present.sum()


def _with_row(pool: Pool, place: Array) -> Array:
    """The payoffs with the current policy as the snapshot at `place`: its record is the row.

    One draw is added to each record, so that few games say little."""
    assert pool.payoff is not None
    games = pool.record.sum(1)
    row = (pool.record[:, 0] - pool.record[:, 2]) / (games + 1)
    row = row.at[place].set(0.0)
    return pool.payoff.at[place].set(row).at[:, place].set(-row)


RULES: dict[str, Callable[[Pool], Array]] = {  # weight of each slot when opponents are drawn
    "latest": _latest,
    "uniform": _uniform,
    "prioritised": _prioritised,
    "nash": _nash,
}


def _put(place: Array, due: Array, places: Array, value: Array) -> Array:
    """Set `places [K,…]` at `place` to `value`, if due."""
    return places.at[place].set(jnp.where(due, value, places[place]))


def _repeated(tree: Any, times: int) -> Any:
    return jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], times, axis=0), tree)


def _split(groups: int, x: Array) -> Array:
    """Reshape `[B,…]` to `[groups,games,…]`."""
    each = -(-len(x) // groups)
    x = jnp.concatenate([x, jnp.repeat(x[-1:], groups * each - len(x), axis=0)])
    return x.reshape(groups, each, *x.shape[1:])

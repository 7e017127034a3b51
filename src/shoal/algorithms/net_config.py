"""Settings of everything that learns with nets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..errors import ShoalError
from ..nets import curiosity, entities, torsos
from .base import at_most, fraction, not_negative, positive


@dataclass(frozen=True)
class NetConfig:
    """Settings of everything that learns with nets."""

    neighbours: ClassVar[bool] = False  # nets read what neighbours did

    lr: float = 5e-4
    """Learning rate."""
    optimiser: Literal["adam", "rmsprop"] = "adam"
    """What makes steps of gradients: adam, or rmsprop with PyMARL's settings."""
    adam_epsilon: float = 1e-5
    """Adam's ε: gradients much smaller than it hardly move a weight, as those of small, rare
    rewards."""
    anneal: bool = True
    """Let the learning rates fall linearly to 0 over the run."""
    max_grad_norm: float = 10.0
    """Norm to which the gradient of each part, such as the actor or the critic, is clipped."""
    gamma: float = 0.99
    """Discount of future rewards."""
    reward: Literal["own", "mean", "sum"] = "own"
    """What each agent learns from: its own reward, or the team's pooled by mean or sum."""
    torso: str = "mlp"
    """mlp is feed-forward; gru is recurrent, its last hidden layer a GRU behind at least one that
    is dense; commnet, ic3net, tarmac and transformer let agents hear each other; <module>:<class>
    is one's own."""
    rounds: int = 1
    """Torsos that communicate: rounds of messages at each instant."""
    near: float = 0.0
    """Torsos that communicate, and mean fields: an agent's neighbours are at most so far away; 0 is
    everybody."""
    position: str = ""
    """With near: which numbers of its observation are an agent's place, such as 2,3."""
    hidden: int = 64
    """Units per layer."""
    layers: int = 2
    """Hidden layers."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation of the hidden layers."""
    layer_norm: bool = False
    """Standardise the features after each hidden layer."""
    channels: str = "16,32"
    """Images: channels of each convolution in front of the hidden layers; empty for none."""
    sharing: str = "shared"
    """Parameters: shared by all agents, own for each, or a partition such as 0,0,1."""
    agent_id: bool = True
    """Tell agents that share parameters apart by a one-hot number."""
    last_action: bool = False
    """Show the agents their previous action."""
    state: Literal["game", "joined", "agent", "pruned"] = "game"
    """What central critics and mixers see: the state as the game gives it, or all observations
    joined; critics also that and the agent's own observation (agent), or this before those of the
    others, none twice (pruned)."""
    entities: str = ""
    """Things alike that an observation lists, which nets read nearest first: those that the game
    says (game), or kinds as first:numbersxcount, such as 4:2x3,10:2x2, with the agent's own place
    after them if theirs is on the board, such as 0:3x3@9,10; empty keeps the game's order."""
    one_hot: int = 0
    """Read observations of whole numbers one-hot, from minus this number to this number; those
    beyond count as the ends; 0 reads numbers as they are."""
    normalise_obs: bool = False
    """Show nets observations, and the state, in deviations from their running means, clipped at
    10."""
    normalise_reward: bool = False
    """Learn from rewards divided by the running deviation of their discounted sums, clipped at 10;
    scores are in the game's unit."""
    curiosity: str = ""
    """Bonus for what is new: rnd, icm, or <module>:<class> of one's own; empty for none."""
    curiosity_weight: float = 0.1
    """Weight of the bonus beside the reward, at the start."""
    curiosity_decay: float = 0.0
    """Share of that weight that is lost by the end of the run, linearly."""

    def __post_init__(self) -> None:
        positive(self, "lr", "adam_epsilon", "max_grad_norm", "hidden", "layers", "rounds")
        at_most(self, 100, "layers", "rounds", "one_hot")
        fraction(self, "gamma", "curiosity_decay")
        not_negative(self, "curiosity_weight", "near", "one_hot")
        convolutions(self.channels)
        if self.entities != "game":
            entities.parse(self.entities)
        _check_near(self)
        if self.one_hot and self.normalise_obs:
            raise ShoalError(
                "one_hot reads whole numbers, which normalise_obs changes: set one_hot to 0 or"
                " normalise_obs to False"
            )
        if self.curiosity:
            curiosity.find(self.curiosity)


def convolutions(channels: str) -> tuple[int, ...]:
    """Parse the channels of each convolution."""
    counts = numbers("channels", channels, "16,32")
    if 0 in counts:
        raise ShoalError(f"channels must be whole numbers such as 16,32, not {channels!r:.80}")
    return counts


def numbers(option: str, value: str, example: str) -> tuple[int, ...]:
    """Parse whole numbers separated by commas."""
    words = value.split(",") if value else []
    if not all(word.strip().isdecimal() and len(word) < 9 for word in words):
        raise ShoalError(f"{option} must be whole numbers such as {example}, not {value!r:.80}")
    return tuple(map(int, words))


def _check_near(config: NetConfig) -> None:
    """Refuse a distance that means nothing."""
    place = numbers("position", config.position, "2,3")
    if config.near and not (torsos.alone(config.torso) or config.neighbours):
        raise ShoalError(
            f"near is for torsos that communicate, which {config.torso} does not, and for mean"
            " fields: set near to 0 or torso to commnet"
        )
    if config.near and not place:
        raise ShoalError(
            "near needs to know where agents are: set position to the numbers of an observation"
            " that say so, such as 2,3"
        )

"""PQN with QMIX's mixer (Gallici et al. 2025; Rashid et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from ..learning.memory import Rollout
from .base import positive
from .pqn import PQN, Learner
from .pqn_vdn import PQNMixConfig
from .qmix import Monotonic, MonotonicConfig


@dataclass(frozen=True)
class PQNQMIXConfig(MonotonicConfig, PQNMixConfig):
    """PQN's settings beside those of the mixing net."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "embedding", "hyper")


class PQNQMIX(Monotonic[PQNQMIXConfig, Learner, Rollout], PQN[PQNQMIXConfig]):
    """PQN whose mixer is monotonic."""

    name = "pqn_qmix"
    Config = PQNQMIXConfig

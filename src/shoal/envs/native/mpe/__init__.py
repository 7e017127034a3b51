"""The multi-agent particle games (MPE), equal to those of the package `mpe2`, one file each.

Imports `physics`, `envs.game`, `render` and the records.
"""

from .simple import Simple
from .simple_adversary import SimpleAdversary
from .simple_crypto import SimpleCrypto
from .simple_push import SimplePush
from .simple_reference import SimpleReference
from .simple_speaker_listener import SimpleSpeakerListener
from .simple_spread import SimpleSpread
from .simple_tag import SimpleTag
from .simple_world_comm import SimpleWorldComm

__all__ = [
    "Simple",
    "SimpleAdversary",
    "SimpleCrypto",
    "SimplePush",
    "SimpleReference",
    "SimpleSpeakerListener",
    "SimpleSpread",
    "SimpleTag",
    "SimpleWorldComm",
]

"""Pictures of games: a game says what is where (`scene`), one drawer draws that (`draw`), a file
holds it (`video`).

This room may touch the records, no game and no learner.
"""

from .scene import Disc, Line, Patch, Scene, Text

__all__ = ["Disc", "Line", "Patch", "Scene", "Text"]

"""Pictures of games: a game describes a `scene`, `draw` draws it, `video` writes the file.

Imports the records, but no game and no learner.
"""

from .scene import Disc, Line, Patch, Scene, Text

__all__ = ["Disc", "Line", "Patch", "Scene", "Text"]

"""What nets read of an observation."""

from __future__ import annotations

import numpy as np
from helpers import call

from shoal.nets.inputs import Kind


def test_things_alike_are_read_nearest_first_and_equally_far_ones_in_their_order():
    own = [7.0, 8.0]
    far = [3.0, -4.0, 1.0]
    near = [0.0, 1.0, 2.0]
    same = [-1.0, 0.0, 3.0]  # as far as `near`
    after = [9.0]
    obs = np.array([[own + far + near + same + after], [own + same + far + near + after]])
    ordered = call(Kind(2, 3, 3).nearest_first, obs)
    np.testing.assert_array_equal(ordered[0, 0], own + near + same + far + after)
    np.testing.assert_array_equal(ordered[1, 0], own + same + near + far + after)


def test_places_on_the_board_are_read_from_where_the_agent_is():
    things = [5.0, 5.0, 1.0, 1.0, 3.0, 2.0]  # row, column and level of two
    obs = np.array([[*things, 4.0, 5.0], [*things, 1.0, 2.0]])  # then the agent's own place
    seen = call(lambda x: Kind(0, 3, 2).nearest_first(x, (6, 7)), obs)
    np.testing.assert_array_equal(seen[0], [1.0, 0.0, 1.0, -3.0, -2.0, 2.0, 4.0, 5.0])
    np.testing.assert_array_equal(seen[1], [0.0, 1.0, 2.0, 4.0, 3.0, 1.0, 1.0, 2.0])

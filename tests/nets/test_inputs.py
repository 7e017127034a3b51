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

"""Things alike that observations list."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import call

from shoal.errors import ShoalError
from shoal.nets.entities import parse


def test_things_alike_are_read_nearest_first_and_equally_far_ones_in_their_order():
    own = [7.0, 8.0]
    far = [3.0, -4.0, 1.0]
    near = [0.0, 1.0, 2.0]
    same = [-1.0, 0.0, 3.0]  # as far as `near`
    after = [9.0]
    obs = np.array([[own + far + near + same + after], [own + same + far + near + after]])
    ordered = call(parse("2:3x3").nearest_first, obs)
    np.testing.assert_array_equal(ordered[0, 0], own + near + same + far + after)
    np.testing.assert_array_equal(ordered[1, 0], own + same + near + far + after)


def test_each_kind_is_ordered_by_itself():
    obs = np.array([0.5, 4.0, 0.0, 3.0, 0.0, 2.0, 0.0, 1.0, 0.0])
    ordered = call(parse("5:2x2,1:2x2").nearest_first, obs)
    np.testing.assert_array_equal(ordered, obs[[0, 3, 4, 1, 2, 7, 8, 5, 6]])


def test_places_on_the_board_are_read_from_where_the_agent_is():
    things = [5.0, 5.0, 1.0, 1.0, 3.0, 2.0]  # row, column and level of two
    obs = np.array([[*things, 4.0, 5.0], [*things, 1.0, 2.0]])  # then the agent's own place
    seen = call(parse("0:3x2@6,7").nearest_first, obs)
    np.testing.assert_array_equal(seen[0], [1.0, 0.0, 1.0, -3.0, -2.0, 2.0, 4.0, 5.0])
    np.testing.assert_array_equal(seen[1], [0.0, 1.0, 2.0, 4.0, 3.0, 1.0, 1.0, 2.0])


@pytest.mark.parametrize(
    "entities",
    ["1", "1:2", "1:0x2", "1:2x0", "1:1x2", "1:2x2,4:2x1", "-1:2x2", "1:2x2,", "0:2x2@", "0:2x2@4"],
)
def test_entities_that_are_none_are_refused(entities: str):
    with pytest.raises(ShoalError, match="each first:numbersxcount"):
        parse(entities)

"""Elementary functions give plain numbers what numpy gives them."""

import math
from itertools import product

import numpy as np
import pytest

from perfmodel.numeric import maximum, minimum

VALUES = (0.0, 1.0, -2.5, 1e300, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize(("own", "of_numpy"), [(maximum, np.maximum), (minimum, np.minimum)])
def test_extremes_of_two_numbers_are_those_of_numpy(own, of_numpy):
    for first, second in product(VALUES, repeat=2):
        np.testing.assert_equal(own(first, second), float(of_numpy(first, second)))
        np.testing.assert_equal(own(np.array([first]), second), of_numpy(np.array([first]), second))

"""The naive truth for weights that fade with age. Python only.

Every step is an operation of IEEE doubles that any machine does alike, so that the native code agrees to the bit;
`math.exp` would not, and is what the tests hold this against.
"""

from __future__ import annotations

import math

__all__ = ["faded"]

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_TERMS = 12


def faded(weight: float, decay: float, age: int) -> float:
    """The product weight * exp(-decay * age), to a relative error of about 1e-15 (1 + decay * age).

    Example:
        >>> round(faded(3.0, 0.5, 2), 12) == round(3 / math.e, 12)
        True
    """
    halvings = decay * _LOG2_E * float(age)
    if age == 0:
        return weight
    if halvings >= 1000:
        return weight * 0.0
    whole = math.floor(halvings + 0.5)
    y = (halvings - whole) * -_LN_2
    power = 1 / math.factorial(_TERMS)
    for k in range(_TERMS - 1, -1, -1):
        power = power * y + 1 / math.factorial(k)
    return weight * (power * 2.0**-whole)

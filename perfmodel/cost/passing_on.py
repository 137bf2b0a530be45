"""Messages that go round a group beside the parts of the operation that needs or makes what they carry."""

from __future__ import annotations

from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity


def exposed_ring(*, message_s: Quantity, computed_s: Quantity, parts: Quantity) -> Quantity:
    r"""Return the time that messages of a ring add to an operation cut into as many parts as the ring has devices.

    .. math:: T = \max\left(0, c - \left(1 - \frac{1}{p}\right) g\right)

    A device has one part already, and computes it while the next arrives; or it sends the parts that others add to as
    they are made, and makes its own last. Either way one part has no message beside it.

    Parameters
    ----------
    message_s : float, ndarray or sympy.Expr
        All messages by themselves, one after the other, c. [s]
    computed_s : float, ndarray or sympy.Expr
        The whole operation by itself, g. [s]
    parts : int or sympy.Expr
        Devices of the ring, p. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time added to the operation. [s]

    Notes
    -----
    Valid for: equal parts and equal messages. Ignores: that smaller parts may compute at a lower rate, and that
    messages may occupy a share of the device.

    Examples
    --------
    Four devices, an operation of 40 ms, and messages of 15, 30 and 60 ms:

    >>> [float(exposed_ring(message_s=message_s, computed_s=40, parts=4)) for message_s in (15, 30, 60)]
    [0.0, 0.0, 30.0]

    References
    ----------
    .. [1] S. Wang et al., Overlap communication with dependent computation via decomposition in large deep learning
       models, ASPLOS 2023, section 5.
    """
    return maximum(message_s - computed_s * (1 - 1 / parts), 0.0)

"""Words that reports of differences share."""

from __future__ import annotations

from perfmodel.presentation.quantities import seconds_text


def signed_seconds_text(seconds: float) -> str:
    """Write a change of time with its sign.

    Parameters
    ----------
    seconds : float
        Change. [s]

    Returns
    -------
    str
        In s, ms or us. [-]

    Examples
    --------
    >>> signed_seconds_text(-0.0125), signed_seconds_text(2.0)
    ('-12.50 ms', '+2.000 s')
    """
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"

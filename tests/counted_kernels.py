"""Calibrations of this machine that end after so many kernels, however fast or busy it is."""

from perfmodel.calibration import calibrate, facts, session, surroundings

CACHES_MIB = (32.0, 2.0)
"""Last cache and those before it, of any machine: flushing a large one takes longer than all kernels."""

REPEATS = 20
"""Kernels that are timed once more at the end."""


def count_kernels(patch, kernel_count, *, cold_points=0):
    """Let the clock of every session pass its budget with the kernels it has timed, not with seconds.

    Kernels are timed as they ever are; of each class ``cold_points`` are also timed after a flush of the caches.
    """
    whole = session.Session

    def counting(backend, *, budget_s, journal, already_s, **options):
        def now():
            timed = len(journal.points) + sum(point.retaken for point in journal.points)
            return budget_s * timed / kernel_count

        return whole(backend, budget_s=budget_s, journal=journal, now=now, **options)

    patch.setattr(calibrate, "Session", counting)
    patch.setattr(facts, "caches_mib", lambda: CACHES_MIB)
    patch.setattr(session, "COLD_POINTS", cold_points)
    patch.setattr(session, "REPEATS", REPEATS)
    patch.setattr(surroundings, "FILE_BYTES", surroundings.BLOCK_BYTES)

"""One collective played by itself."""

from perfmodel.simulation import simulate
from perfmodel.simulation.synchronous import collective_tasks


def play_collective(placed, size_bytes):
    channels = {
        channel.name: channel.capacity_bytes_per_s
        for each in placed.rounds
        for route in placed.routes(each)
        for channel in route.channels
    }
    return simulate(collective_tasks(placed, size_bytes), channels=channels, resources={})

"""Flows that are under way, and when they will have ended at the rates they have now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from perfmodel.cost.fair_share import max_min_rates

MOST_KNOWN_RATES: Final = 4096
"""Sets of flows whose rates are kept; steps repeat few, and flows at random moments would fill the memory. [1]"""


class _Flow:
    """Bytes of one task on their way; of each version (rate) of it, one ending at most is announced."""

    __slots__ = ("announced", "end_s", "index", "left_bytes", "rate", "since_s", "version")

    def __init__(self, index: int, flow_bytes: float, now_s: float) -> None:
        self.index, self.left_bytes, self.since_s = index, flow_bytes, now_s
        self.rate, self.end_s = 0.0, np.inf
        self.version = self.announced = 0


class SharedChannels:
    """Flows over channels, whose rates change only where a flow began or ended on a channel that leads to them.

    Flows of one route have one rate, so rates are found for routes, once for every set of routes that share channels.

    Parameters
    ----------
    capacity : mapping of str to float
        What each channel carries. [B/s]
    """

    def __init__(self, capacity: Mapping[str, float]) -> None:
        self._capacity = np.array(list(capacity.values()), dtype=float)
        self._places = {name: place for place, name in enumerate(capacity)}
        self._route_ids: dict[tuple[str, ...], int] = {}
        self._routes: list[dict[int, int]] = []
        self._uses = np.zeros((0, len(capacity)))
        self._flows: list[dict[int, _Flow]] = []
        self._route_of: dict[int, int] = {}
        self._busy_routes: list[dict[int, None]] = [{} for _ in capacity]
        self._touched: dict[int, None] = {}
        self._known_rates: dict[tuple[int, ...], list[float]] = {}

    def add(self, index: int, channels: tuple[str, ...], *, flow_bytes: float, now_s: float) -> None:
        """Begin a flow; ``endings`` tells when it will have ended.

        Parameters
        ----------
        index : int
            Number of its task. [1]
        channels : tuple of str
            Channels it passes. [-]
        flow_bytes : float
            Bytes it sends over each. [B]
        now_s : float
            Time. [s]
        """
        route = self._route_ids.get(channels)
        if route is None:
            route = self._route_ids[channels] = len(self._routes)
            self._routes.append(Counter(self._places[name] for name in channels))
            self._flows.append({})
            if route == len(self._uses):  # grows in doubles
                self._uses = np.concatenate([self._uses, np.zeros((max(route, 16), len(self._capacity)))])
            self._uses[route, list(self._routes[route])] = list(self._routes[route].values())
        self._route_of[index] = route
        self._flows[route][index] = _Flow(index, flow_bytes, now_s)
        for place in self._routes[route]:
            self._busy_routes[place][route] = None
            self._touched[place] = None

    def ends(self, index: int, version: int) -> bool:
        """End the flow of a task, unless its rate has changed since the ending of this version was announced.

        Parameters
        ----------
        index : int
            Number of its task. [1]
        version : int
            Version of the ending. [1]
        """
        route = self._route_of.get(index, -1)
        if route < 0 or self._flows[route][index].version != version:
            return False
        del self._route_of[index]
        del self._flows[route][index]
        for place in self._routes[route]:
            if not self._flows[route]:
                del self._busy_routes[place][route]
            self._touched[place] = None
        return True

    def endings(self, now_s: float) -> list[tuple[float, int, int]]:
        """Share the channels anew where flows began or ended since last asked.

        Of flows that are joined by shared channels only the first endings are announced: they change what the others
        get, or at least bring the next ones to light.

        Parameters
        ----------
        now_s : float
            Time. [s]

        Returns
        -------
        list of tuple of (float, int, int)
            When a flow ends [s], the number of its task and the version; what was announced before still holds for
            flows whose rate has not changed.
        """
        found: list[tuple[float, int, int]] = []
        seen: set[int] = set()
        for place in self._touched:
            if place in seen:
                continue
            routes = self._connected_routes(place, seen)
            first_s, first = np.inf, []
            for route, rate in zip(routes, self._rates(routes), strict=True):
                for flow in self._flows[route].values():
                    if flow.rate != rate:
                        left_bytes = flow.left_bytes - flow.rate * (now_s - flow.since_s)
                        flow.left_bytes = left_bytes if left_bytes > 0 else 0.0
                        flow.since_s, flow.rate = now_s, rate
                        flow.end_s = now_s + flow.left_bytes / rate
                        flow.version += 1
                    if flow.end_s < first_s:
                        first_s, first = flow.end_s, [flow]
                    elif flow.end_s == first_s:
                        first.append(flow)
            for flow in first:
                if flow.announced != flow.version:
                    flow.announced = flow.version
                    found.append((flow.end_s, flow.index, flow.version))
        self._touched.clear()
        return found

    def _connected_routes(self, place: int, seen: set[int]) -> list[int]:
        """Return the routes in use that a channel leads to, over channels they share, and mark these channels seen."""
        routes: set[int] = set()
        to_visit = [place]
        seen.add(place)
        while to_visit:
            for route in self._busy_routes[to_visit.pop()]:
                if route not in routes:
                    routes.add(route)
                    new = [other for other in self._routes[route] if other not in seen]
                    seen.update(new)
                    to_visit += new
        return sorted(routes)

    def _rates(self, routes: list[int]) -> list[float]:
        """Return the rate of one flow of each route."""
        if not routes:
            return []
        flow_counts = [len(self._flows[route]) for route in routes]
        key = (*routes, *flow_counts)
        rates = self._known_rates.get(key)
        if rates is None:
            uses = self._uses[routes] * np.array(flow_counts)[:, None]
            used = uses.any(axis=0)
            rates = max_min_rates(capacity=self._capacity[used], uses=uses[:, used]).tolist()
            if len(self._known_rates) == MOST_KNOWN_RATES:
                self._known_rates.clear()
            self._known_rates[key] = rates
        return rates

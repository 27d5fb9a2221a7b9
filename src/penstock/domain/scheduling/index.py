"""Keep an index of which nodes have room for one replica, now and later, updated node by node.

A shape is what all places of a kind have in common, so that ten thousand waiting jobs of twenty kinds cost twenty looks
at a node that changed, and none at those that did not.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from penstock.domain.nodes import Node
from penstock.domain.policy import EVERYTHING
from penstock.domain.scheduling.capacity import Key, Moment, NodeCapacity, whole
from penstock.domain.scheduling.demand import Ask
from penstock.domain.scheduling.fit import count, first_end, share
from penstock.domain.scheduling.obstacles import possible

Step = tuple[int, Moment | Key, str, int]
"""0 and the order of filling: it fits now; 1 and the end that makes it fit. On this node, so many more places; 0 more:
not before this, and nobody has looked when."""


class Choice:
    """The nodes that have room now, with GPUs of these products only, in the order in which they are filled."""

    def __init__(self, ask: Ask, products: tuple[str, ...]) -> None:
        self.products = products
        self.counts: dict[str, int] = {}
        self.total = 0
        self._ask = ask
        self._keys: dict[str, Key] = {}
        self._order: list[Key] = []

    def look(self, name: str, room: NodeCapacity | None) -> int:
        """Count the places on a node."""
        fits = count(self._ask, self.products, room.free, room.node) if room else 0
        if name in self._keys:
            self._forget(name)
        if room and fits:
            key = self._keys[name] = room.key(self._ask.gpus > 0)
            insort(self._order, key)
            self.counts[name] = fits
            self.total += fits
        return fits

    def _forget(self, name: str) -> None:
        del self._order[bisect_left(self._order, self._keys.pop(name))]
        self.total -= self.counts.pop(name)

    def nodes(self, emptiest_first: bool = False) -> Iterator[str]:
        for key in reversed(self._order) if emptiest_first else self._order:
            yield key[-1]


class FitIndex:
    def __init__(self, ask: Ask, rooms: Mapping[str, NodeCapacity], products: Sequence[str]) -> None:
        self.ask = ask
        """What one place asks for."""
        alone: list[tuple[str, ...]] = [(product,) for product in products] if len(products) > 1 else []
        self.choices = [Choice(ask, each) for each in [*alone, tuple(products)]]
        """The choices of one product after the other, and at last of all mixed."""
        self.stale = set(rooms)
        """Nodes that changed since somebody looked."""
        self._rooms = rooms
        self._known: dict[str, tuple[Node, int]] = {}
        self._capacity = 0
        self._largest: int | None = 0
        self._shares: list[tuple[int, int]] | None = []
        self._unforeseen: set[str] = set(rooms)
        self._foreseen = 0
        self._steps: list[Step] = []
        self._steps_of: dict[str, list[Step]] = {}

    @property
    def widest(self) -> Choice:
        return self.choices[-1]

    def room_for(self, ask: Ask) -> int:
        """Return how many places of this ask, whose shape it is, there are now; as of the last look."""
        return max(self.widest.counts.values(), default=0) if ask.together else self.widest.total

    def would_do(self, ask: Ask, places: int) -> bool:
        """Would there be so many if nothing ran?"""
        return (self.largest if ask.together else self.capacity) >= places

    def changed(self, name: str) -> None:
        """Note that a node changed. What runs on a node that would not do even empty makes no difference."""
        known, room = self._known.get(name), self._rooms.get(name)
        if known is None or known[1] or room is None or known[0] is not room.node:
            self.stale.add(name)

    def look(self) -> None:
        """Bring everything but the future up to date."""
        for name in self.stale:
            room = self._rooms.get(name)
            if not self._weigh(name, room):
                room = None
            some = self.widest.look(name, room)
            for choice in self.choices[:-1]:
                choice.look(name, room if some else None)
        self._unforeseen |= self.stale
        self.stale.clear()

    def fits_empty(self, name: str) -> int:
        """Return how many places the empty node would have; nothing if it is closed."""
        return self._known[name][1] if name in self._known else 0

    def _weigh(self, name: str, room: NodeCapacity | None) -> int:
        known = self._known.get(name)
        if known and room and known[0] is room.node:
            return known[1]
        self._capacity -= known[1] if known else 0
        self._known.pop(name, None)
        self._largest = self._shares = None
        if room is None:
            return 0
        fits = 0
        if possible(self.ask, room.node):
            fits = count(self.ask, self.widest.products, whole(room.node), room.node)
        self._known[name] = (room.node, fits)
        self._capacity += fits
        return fits

    @property
    def capacity(self) -> int:
        """Return how many places there would be if nothing ran."""
        self.look()
        return self._capacity

    @property
    def largest(self) -> int:
        """Return how many places the largest node has when it is empty."""
        if self._largest is None:
            self._largest = max((fits for _, fits in self._known.values()), default=0)
        return self._largest

    def bounds(self, cpus_milli: int, most: int, least: int) -> list[tuple[int, int]]:
        """Return what a share of the node's CPUs may be at most, where there may be so many CPUs in all, and how many
        places, if nothing ran, there are of such. Most places first."""
        self.look()
        if self._shares is None:
            self._shares = self._by_share()
        found: list[tuple[int, int]] = []
        for each, number in reversed(self._shares):
            places = min(most, number, cpus_milli // each if each else most)
            if places >= least and (not found or places > found[-1][1]):
                found.append((each, places))
        return found[::-1]

    def _by_share(self) -> list[tuple[int, int]]:
        """Return the sizes of shares, the smallest first, and how many places have such a one or a smaller."""
        counts: dict[int, int] = {}
        for node, fits in self._known.values():
            if fits:
                each = share(node.cpus_milli, self.ask, node)
                counts[each] = counts.get(each, 0) + fits
        return list(zip(sorted(counts), accumulate(counts[each] for each in sorted(counts)), strict=True))

    def all_within(self, share_milli: int) -> bool:
        """Is no share larger?"""
        return not self._shares or self._shares[-1][0] <= share_milli

    def steps(self, places: int) -> Iterator[Step]:
        """Yield when how much more room is expected, and where; of each node, as far as it matters to so many places.

        Whoever asks mostly needs the first few: what a node's jobs make free one after the other is looked at only when
        the first of them could be next.
        """
        self.look()
        if places > self._foreseen:
            self._foreseen = places
            self._unforeseen = set(self._known)
        for name in self._unforeseen:
            self._expect(name, self._guess(self._rooms[name]) if self.fits_empty(name) else [])
        self._unforeseen.clear()
        place = 0
        while place < len(self._steps):
            step = self._steps[place]
            if step[3]:
                yield step
                place += 1
            else:
                self._expect(step[2], self._foresee(self._rooms[step[2]]))

    def _expect(self, name: str, steps: list[Step]) -> None:
        for step in self._steps_of.pop(name, ()):
            del self._steps[bisect_left(self._steps, step)]
        if steps:
            self._steps_of[name] = steps
            for step in steps:
                insort(self._steps, step)

    def _guess(self, room: NodeCapacity) -> list[Step]:
        name = room.node.name
        if name in self.widest.counts:
            return [(0, room.key(self.ask.gpus > 0), name, 0)]
        return [(1, room.soonest, name, 0)] if room.soonest else []

    def _foresee(self, room: NodeCapacity) -> list[Step]:
        found: list[Step] = []
        products, name = self.widest.products, room.node.name
        had = self.widest.counts.get(name, 0)
        if had:
            found.append((0, room.key(self.ask.gpus > 0), name, had))
        most, later = min(self.fits_empty(name), self._foreseen), room.later
        while had < most and (place := first_end(self.ask, products, had + 1, room)) < len(later):
            held, free = later[place]
            more = count(self.ask, products, free, room.node) - had
            found.append((1, held.end_key, name, more))
            had += more
        return found


class FitIndexes:
    """The shapes that were asked for lately."""

    KEPT = 512

    def __init__(self, rooms: Mapping[str, NodeCapacity]) -> None:
        self._rooms = rooms
        self._shapes: dict[Ask, FitIndex] = {}
        self._groups: frozenset[str] = frozenset()
        self._products: list[str] = []
        self._outdated = True

    def key(self, ask: Ask) -> Ask:
        """Return the ask by what difference it makes: groups that have no node make none."""
        if ask.groups is None:
            return ask
        groups = self._groups if EVERYTHING in ask.groups else ask.groups & self._groups
        return ask if groups == ask.groups else replace(ask, groups=groups)

    def of(self, ask: Ask) -> FitIndex:
        key = self.key(ask).shape
        shape = self._shapes.pop(key, None)
        if shape is None:
            products = [product for product in self._products if key.gpus and key.takes_product(product)]
            shape = FitIndex(key, self._rooms, products)
        self._shapes[key] = shape
        if len(self._shapes) > self.KEPT:
            del self._shapes[next(iter(self._shapes))]
        return shape

    def within(self, shape: FitIndex, share_milli: int) -> FitIndex:
        """Return the shape with only those nodes where a share is no more."""
        return shape if shape.all_within(share_milli) else self.of(replace(shape.ask, share_milli=share_milli))

    def changed(self, name: str, *, kinds: bool = False) -> None:
        """Note that a node is different; `kinds`: also in whose it is or which GPUs it has."""
        if kinds:
            self._outdated = True
        for shape in self._shapes.values():
            shape.changed(name)

    def learn(self) -> bool:
        """Learn whose nodes there are and with which GPUs; True if that is different. Of several products that would
        do, the one with least memory is given first."""
        if not self._outdated:
            return False
        self._outdated = False
        memory: dict[str, int] = {}
        for room in self._rooms.values():
            for gpu in room.node.gpus:
                memory[gpu.product] = min(memory.get(gpu.product, gpu.memory_bytes), gpu.memory_bytes)
        groups = frozenset(room.node.group for room in self._rooms.values() if room.node.group)
        products = sorted(memory, key=lambda product: (memory[product], product))
        if (groups, products) == (self._groups, self._products):
            return False
        self._groups, self._products = groups, products
        self._shapes.clear()
        return True

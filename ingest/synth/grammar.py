"""Sentences from templates: knows slots and rules, and nothing of what the words mean."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from ingest.synth.dice import Dice

SLOT = re.compile(r"\{(\w+)\}")

Rules = Mapping[str, Sequence[str]]
Compiled = tuple[str, ...]
"""Literal, slot, literal, slot, …, literal."""


class Grammar:
    """Rules compiled once. A slot names another rule or one of the live names."""

    def __init__(self, rules: Sequence[Rules], *, live: Sequence[str]) -> None:
        self.live = frozenset(live)
        self.compiled: dict[str, tuple[Compiled, ...]] = {}
        for group in rules:
            for name, templates in group.items():
                if name in self.compiled or name in self.live:
                    raise ValueError(f"the rule {name!r} is defined twice")
                self.compiled[name] = tuple(tuple(SLOT.split(text)) for text in templates)
        self._check_slots()

    def _check_slots(self) -> None:
        for name, templates in self.compiled.items():
            for parts in templates:
                for slot in parts[1::2]:
                    if slot not in self.compiled and slot not in self.live:
                        raise ValueError(f"the rule {name!r} uses the unknown slot {slot!r}")


class Writer:
    """A grammar with its dice and its live names: what changes from one case to the next."""

    def __init__(
        self, *, grammar: Grammar, dice: Dice, live: Mapping[str, Callable[[], str]]
    ) -> None:
        if missing := sorted(grammar.live - live.keys()):
            raise ValueError(f"no source for the live names {missing}")
        self._compiled = grammar.compiled
        self._dice = dice
        self._live = live

    def say(self, name: str) -> str:
        if source := self._live.get(name):
            return source()
        return self._fill(self._dice.pick(self._compiled[name]))

    def say_some(self, name: str, count: int) -> str:
        """A paragraph of up to `count` sentences from different templates, each capitalised."""
        return " ".join(islice(self.say_each(name), count))

    def say_each(self, name: str) -> Iterator[str]:
        """One sentence from every template, in any order, each capitalised."""
        for parts in self._dice.shuffled(self._compiled[name]):
            text = self._fill(parts)
            yield f"{text[0].upper()}{text[1:]}"

    def _fill(self, parts: Compiled) -> str:
        return "".join(self.say(part) if at % 2 else part for at, part in enumerate(parts))

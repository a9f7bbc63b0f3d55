"""WordNet's files as Debian's package ``wordnet-base`` installs them: glosses, antonyms, kinds of words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hf_blosan.errors import InputError

FOLDER = "/usr/share/wordnet"
FILES = ("noun", "verb", "adj", "adv")
NAMES = (
    "adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body "
    "noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive "
    "noun.object noun.person noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation "
    "noun.shape noun.state noun.substance noun.time verb.body verb.change verb.cognition verb.communication "
    "verb.competition verb.consumption verb.contact verb.creation verb.emotion verb.motion verb.perception "
    "verb.possession verb.social verb.stative verb.weather adj.ppl"
).split()
"""The lexicographer files by number; see lexnames(5WN)."""
ANTONYM = "!"
SOMETHING, SOMEBODY = 8, 9
"""Sentence frames of verbs: somebody does it to something, to somebody."""


@dataclass(frozen=True)
class Synset:
    """A line of a data file; ``antonyms`` are (word, offset, number of the word there), ``frames`` those of verbs."""

    kind: str
    words: tuple[str, ...]
    antonyms: tuple[tuple[str, str, int], ...]
    frames: frozenset[int]
    gloss: str

    @classmethod
    def parse(cls, line: str) -> Synset:
        """From ``offset file type count word id ... pointers ... | gloss``; see wndb(5WN)."""
        head, _, gloss = line.partition(" | ")
        fields = head.split()
        count = int(fields[3], 16)
        words = tuple(re.sub(r"\(.*", "", word) for word in fields[4 : 4 + 2 * count : 2])
        start = 5 + 2 * count
        antonyms = []
        end = start + 4 * int(fields[start - 1])
        for at in range(start, end, 4):
            symbol, offset, _, numbers = fields[at : at + 4]
            source, target = int(numbers[:2], 16), int(numbers[2:], 16)
            if symbol == ANTONYM and source and target:
                antonyms.append((words[source - 1], offset, target))
        frames = frozenset(map(int, fields[end + 2 :: 3]))
        return cls(NAMES[int(fields[1])], words, tuple(antonyms), frames, gloss.strip())


class WordNet:
    """The synsets of a folder.

    Raises:
        InputError: the folder lacks a file.
    """

    def __init__(self, folder: str = FOLDER) -> None:
        self.synsets: dict[str, dict[str, Synset]] = {}
        self.senses: dict[str, dict[str, list[str]]] = {}
        for pos in FILES:
            data = (line.split(" ", 1)[0:1] + [Synset.parse(line)] for line in lines(folder, f"data.{pos}"))
            self.synsets[pos] = dict(data)
            entries = (line.split() for line in lines(folder, f"index.{pos}"))
            self.senses[pos] = {entry[0]: entry[-int(entry[2]) :] for entry in entries}

    def kind(self, word: str, pos: str = "noun") -> str | None:
        """The lexicographer file of the first sense in which the word is written in lower case, or None."""
        for offset in self.senses[pos].get(word, ()):
            if word in (synset := self.synsets[pos][offset]).words:
                return synset.kind
        return None

    def frames(self, verb: str) -> frozenset[int]:
        """The sentence frames of its first three senses."""
        offsets = self.senses["verb"].get(verb, ())[:3]
        return frozenset().union(*(self.synsets["verb"][offset].frames for offset in offsets))

    def antonyms(self, pos: str) -> dict[str, list[str]]:
        """Of each single word that has some, its antonyms over all senses."""
        found: dict[str, dict[str, None]] = {}
        for synset in self.synsets[pos].values():
            for word, offset, number in synset.antonyms:
                other = self.synsets[pos][offset].words[number - 1]
                if all(re.fullmatch("[a-z]+", one) for one in (word, other)):
                    found.setdefault(word, {})[other] = None
        return {word: list(others) for word, others in found.items()}

    def glosses(self) -> Iterator[str]:
        """Definitions and examples."""
        for pos in FILES:
            for synset in self.synsets[pos].values():
                definition, *examples = re.split(r';\s*(?=")', synset.gloss)
                yield re.sub(r"^\([^)]*\)\s*", "", definition).strip().rstrip(";")
                yield from (text for text in (example.strip('"; ') for example in examples) if '"' not in text)


def lines(folder: str, name: str) -> Iterator[str]:
    """The lines of a file behind its license, which is indented."""
    try:
        with open(Path(folder, name), encoding="utf-8") as file:
            yield from (line for line in file if not line.startswith("  "))
    except OSError as error:
        raise InputError(
            f"{error.filename} cannot be read ({error.strerror}); apt-get install wordnet-base, or give its folder"
        ) from error

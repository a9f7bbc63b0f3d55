"""One output from several commands, each on its own machine: ``--shard``, the parts, and whether all are there.

Rows are dealt in contiguous blocks, like those of ``datasets.Dataset.shard``, so that the parts, one after the other,
are the output of a single command. That requires the number of rows, which a Parquet file records; other files are
read through once, without parsing, in a fraction of the time it takes to encode them. Taking every Nth row would not
need the number, but the parts could not be put together without sorting.

Nothing has to see all machines. A command leaves a manifest next to its part: which of how many parts it is, its
rows and its size, and what it was made from, named so that it is the same on every machine. The set is complete when
every part is there with its manifest, and all were made from the same sources. The names of manifests begin with a
dot, because datasets, pyarrow and Spark do not read such files as data.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, listed

if TYPE_CHECKING:
    from .arguments import ShardsArguments


@dataclass(frozen=True)
class Shard:
    """One of the parts of an output; they are counted from 0."""

    index: int
    number: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """The shard of ``--shard INDEX/NUMBER``; raises InputError if it is not written so, or there is none."""
        if not (found := re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text)):
            raise InputError(f"--shard is {text!r}; give INDEX/NUMBER, as in 0/16 for the first of 16 parts.")
        index, number = map(int, found.groups())
        if index >= number:
            last = f"there are 0/{number} to {number - 1}/{number}" if number else "there has to be at least one"
            raise InputError(f"--shard is {text}; parts are counted from 0: {last}.")
        return cls(index, number)

    def __str__(self) -> str:
        return f"{self.index}/{self.number}"

    def part(self, output: str | Path) -> Path:
        """The file of this part, named like those of datasets: vectors-00003-of-00016.parquet."""
        output = Path(output)
        return output.with_name(f"{output.stem}-{self.index:05d}-of-{self.number:05d}{output.suffix}")

    def manifest(self, output: str | Path) -> Path:
        """The file that says what the part is."""
        return (part := self.part(output)).with_name(f".{part.name}.json")

    def block(self, rows: int) -> tuple[int, int]:
        """The first row of the part, from 0, and the one after its last; sizes differ by one at most."""
        size, longer = divmod(rows, self.number)
        start = self.index * size + min(self.index, longer)
        return start, start + size + (self.index < longer)

    def write_manifest(self, output: str | Path, made_from: dict[str, Any]) -> None:
        """Say that the part is complete, and what it was made from, with the rows of the input."""
        from ..files import write_json  # here, to keep --help fast

        part, block = self.part(output), self.block(made_from["input"]["rows"])
        shown = {"part": part.name, "shard": str(self), "block": block, "bytes": part.stat().st_size}
        write_json(self.manifest(output), shown | {"made_from": made_from})

    def read_manifest(self, output: str | Path) -> dict[str, Any] | None:
        """What the manifest says, if the part is there and complete."""
        try:
            found = json.loads(self.manifest(output).read_bytes())
            same = found["shard"] == str(self) and found["block"] == [*self.block(found["made_from"]["input"]["rows"])]
            return found if same and found["bytes"] == self.part(output).stat().st_size else None
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def is_complete(self, output: str | Path, made_from: dict[str, Any]) -> bool:
        """Whether this part was made before, and from the same sources."""
        found = self.read_manifest(output)
        return found is not None and found["made_from"] == json.loads(json.dumps(made_from))


def shards(arguments: ShardsArguments) -> int:
    """Say whether the parts of an output are a complete set; return the exit status, 1 if some are missing.

    Raises:
        InputError: there are no parts, or they do not belong together.
    """
    output = Path(arguments.output)
    number = _number_of_parts(output)
    everything = [Shard(index, number) for index in range(number)]
    found = {shard: manifest for shard in everything if (manifest := shard.read_manifest(output))}
    _check_alike(output, found)
    missing = [str(shard) for shard in everything if shard not in found]
    rows = sum(manifest["block"][1] - manifest["block"][0] for manifest in found.values())
    if missing:
        print(f"{output}: partial, {len(found)} of {number} parts with {rows:,} rows; missing {listed(missing, 20)}")
        return 1
    print(f"{output}: complete, {number} parts with {rows:,} rows")
    return 0


def _number_of_parts(output: Path) -> int:
    """How many parts there should be, from the names of those that are there."""
    name = re.compile(rf"{re.escape(output.stem)}-[0-9]{{5}}-of-([0-9]{{5}}){re.escape(output.suffix)}")
    files = output.parent.iterdir() if output.parent.is_dir() else ()
    numbers = sorted({int(found[1]) for path in files if (found := name.fullmatch(path.name))})
    if not numbers:
        raise InputError(
            f"there is no part of {output}, such as {Shard(0, 16).part(output).name}; give the OUTPUT that "
            "was given with --shard"
        )
    if len(numbers) > 1:
        raise InputError(
            f"{output.parent} has parts of {output.name} of {listed(map(str, numbers))} shards; delete all "
            "but those of one number"
        )
    return numbers[0]


def _check_alike(output: Path, found: dict[Shard, dict[str, Any]]) -> None:
    """Raises InputError if two parts were not made from the same sources."""
    sources = {shard: manifest["made_from"] for shard, manifest in found.items()}
    first, expected = next(iter(sources.items()), (None, {}))
    for shard, source in sources.items():
        for name in sorted(source.keys() | expected.keys()):
            if source.get(name) != expected.get(name):
                raise InputError(
                    f"{shard.part(output)} was made from another {name} than {first.part(output).name}; make one of "
                    f"them again, with --shard {shard} or {first}"
                )

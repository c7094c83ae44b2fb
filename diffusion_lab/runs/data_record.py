"""What the data of a run are, as run.json records it: sizes, fingerprints of images and labels, names of the classes.

Nothing in it depends on where the images are or on how they are read, so a moved folder is the same data. It is
compared when a run goes on, is repeated, or needs its images again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from diffusion_lab.printable import one_line

SHOWN = 8  # class names in a sentence
SPLITS = {"train": "training", "test": "test"}


class RecordedSplit(NamedTuple):
    """One split.

    Attributes:
        images: N.
        fingerprint: of the images, see `ImageSet.fingerprint`.
        labels: fingerprint of the labels; None without labels.
    """

    images: int
    fingerprint: str
    labels: str | None


@dataclass(frozen=True)
class DataRecord:
    """The data of a run.

    Attributes:
        name: name of the source.
        shape: (C,H,W) of one image.
        train, test: the splits.
        classes: names of the classes in the order of their labels; None without classes.
    """

    name: str
    shape: tuple[int, int, int]
    train: RecordedSplit
    test: RecordedSplit
    classes: tuple[str, ...] | None

    @classmethod
    def read(cls, value: Any) -> DataRecord | None:
        """From the plain values of a run.json, which anybody may have written; None if they are not a record."""
        try:
            train, test = (RecordedSplit(**{k: value[split][k] for k in RecordedSplit._fields}) for split in SPLITS)
            names, (channels, height, width) = value["classes"], value["shape"]
        except (KeyError, TypeError, ValueError):
            return None
        numbers = channels, height, width, train.images, test.images
        good = isinstance(value["name"], str) and all(type(n) is int for n in numbers)
        good = good and all(isinstance(split.fingerprint, str) for split in (train, test))
        good = good and (names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)))
        if not good:
            return None
        return cls(value["name"], (channels, height, width), train, test, None if names is None else tuple(names))

    def numbered(self) -> str:
        """The classes with their labels for a sentence: "0 cat, 1 dog"; "" without classes."""
        return numbered(self.classes or ())

    def plain(self) -> dict[str, Any]:
        """The record for run.json."""
        splits = {split: getattr(self, split)._asdict() for split in SPLITS}
        classes = None if self.classes is None else list(self.classes)
        return asdict(self) | splits | {"shape": list(self.shape), "classes": classes}

    def digest(self) -> str:
        """12 hexadecimal digits, equal for equal data."""
        return hashlib.sha256(repr((self.shape, *self.train, *self.test, self.classes)).encode()).hexdigest()[:12]

    def changes(self, now: DataRecord, labelled: bool) -> list[str]:
        """In what the data of now differ, one phrase each, e.g. "other training images"; empty if in nothing.

        Args:
            now: the record of now.
            labelled: whether the labels matter, as for a conditional model.
        """
        found = [] if self.shape == now.shape else [f"images of {_by(self.shape)} -> {_by(now.shape)}"]
        then, here = (f"{one.train.images} training and {one.test.images} test images" for one in (self, now))
        if then != here:
            found.append(f"{then} -> {here}")
        else:
            for split in SPLITS:
                found += changed_split(split, getattr(self, split), getattr(now, split), labelled)
        return found + (changed_classes(self.classes, now.classes) if labelled else [])


def changed_split(split: str, then: RecordedSplit, now: RecordedSplit, labelled: bool) -> list[str]:
    """In what a split differs; labels are compared if they matter and the images are the same."""
    kind = SPLITS[split]
    if then.images != now.images:
        return [f"{then.images} -> {now.images} {kind} images"]
    if then.fingerprint != now.fingerprint:
        return [f"other {kind} images ({then.fingerprint} -> {now.fingerprint})"]
    return [f"other labels of the {kind} images"] if labelled and then.labels != now.labels else []


def changed_classes(then: tuple[str, ...] | None, now: tuple[str, ...] | None) -> list[str]:
    """Classes that were added, removed or have another number."""
    if then == now or then is None or now is None:
        return []
    added, removed = [name for name in now if name not in then], [name for name in then if name not in now]
    words = [f"{_few(added)} added" if added else "", f"{_few(removed)} removed" if removed else ""]
    return [f"classes: {', '.join(filter(None, words)) or f'{_few(then)} -> {_few(now)}'}"]


def numbered(names: Sequence[str], labels: Iterable[int] | None = None) -> str:
    """Labels with the names of their classes: "0 cat, 1 dog"; by default all labels. Names that are the labels
    themselves are left out."""
    chosen = list(range(len(names)) if labels is None else labels)
    return _few([f"{label} {names[label]}" for label in chosen if names[label] != str(label)])


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(one_line, names[:SHOWN])) + more


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def parse_labels(labels: Any, num_classes: int | None, names: Sequence[str] = ()) -> list[int]:
    """3 or [3, 5] -> the list of them; [cat, dog] -> their numbers; [] for None.

    Args:
        labels: numbers of classes, or names as text, with capitals or not.
        num_classes: K; None for an unconditional model.
        names: of the classes, in the order of their numbers.

    Raises:
        ValueError: the model is unconditional, or a number or name is not a class.
    """
    if labels is None:
        return []
    several = isinstance(labels, Sequence) and not isinstance(labels, str)
    given: list[Any] = list(labels) if several else [labels]
    typed = f"[{','.join(map(str, given))}]" if several else labels
    if num_classes is None:
        raise ValueError(f"labels={typed} must be null for this run, which was trained without labels")
    of = {name.casefold(): label for label, name in enumerate(names)} | {name: k for k, name in enumerate(names)}
    given = [of.get(label, of.get(label.casefold(), label)) if isinstance(label, str) else label for label in given]
    wrong = [label for label in given if type(label) is not int or not 0 <= label < num_classes]
    if wrong or not given:
        known = numbered(names)
        named = names if known else ()
        close = [match for label in wrong for match in get_close_matches(str(label), named, n=1)]
        example = f"{names[0]},{names[-1]}" if known else "0,1"
        cure = f" (did you mean {close[0]!r}?)" if close else f"; use labels=[{example}]"
        raise ValueError(
            f"labels={typed} must be classes in 0..{num_classes - 1}{f' ({known})' if known else ''}{cure}"
        )
    return given

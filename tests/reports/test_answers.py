"""experiments/answers.md: ten questions, each with two sentences that say what its table has."""

from __future__ import annotations

import re

import pytest

from experiments.evidence import FOLDER, QUESTIONS

PAGE = (FOLDER / "answers.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## \d+\. ", PAGE.partition("\n## And")[0], flags=re.MULTILINE)[1:]
# For which verdicts the sentences were written: when one of these fails, read the answer again.
WRITTEN_FOR = {
    "samplers": f"{'better ' * 13}worse worse worse better better equal worse open open better",
    "budgets": "better better open open open open open open open open better open",
    "weightings": "better open open better better better better better open better better better better better better",
    "predictions": "better better open better better open worse better open better better open open open",
    "mixing": "worse open open worse worse open open worse open worse worse worse worse open worse",
    "schedules": "open open worse open better better open",
    "learned": "better worse better open worse open open better better open open worse open open better open "
    "worse worse equal equal better better worse",
    "momentum": "equal equal equal open better open open open open open open worse",
    "precision": "equal equal",
    "newer": "better better open open better open open worse better worse better better worse",
}


def test_each_question_has_a_section_in_two_sentences_with_its_limits() -> None:
    assert [re.search(r"cells: evidence (\w+)", one)[1] for one in SECTIONS] == list(QUESTIONS)
    for text in SECTIONS:
        answer = re.search(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE)
        assert answer and len(re.findall(r"[.](?: |$)", answer[1])) == 2, text[:60]
        assert "\nHolds for: " in text and "\nCould be overturned by: " in text


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_sentences_were_written_for_these_verdicts(question: str) -> None:
    words = ["open" if one.found.word == "not decided" else one.found.word for one in QUESTIONS[question]()]
    assert " ".join(words) == WRITTEN_FOR[question]

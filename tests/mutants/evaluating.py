"""Bugs in the evaluation of many small message files at once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TOGETHER = ("tests/unit/journal/test_evaluation.py",)
_PREPARED = ("tests/unit/journal/test_prepared_traits.py",)
_UPKEEP = ("tests/unit/journal/test_upkeep.py",)

EVALUATING = (
    Mutant(
        "each small file of many gets the values of the first of them",
        "{wanted: Found(*(array[part] for array in found)) for",
        "{wanted: Found(*(array[: len(array[part])] for array in found)) for",
        _TOGETHER,
    ),
    Mutant(
        "a damaged file is in the values of those around it",
        "            if pieces is None:\n                break\n",
        "            if pieces is None:\n                continue\n",
        _TOGETHER,
    ),
    Mutant(
        "values at hand answer other expressions",
        "if not found.keys() >= set(question.wanted):",
        "if not found:",
        _TOGETHER,
    ),
    Mutant(
        "all small files of a journal are in memory at once",
        "if rows >= TOGETHER_ROWS or size_bytes >= TOGETHER_BYTES:",
        "if False:",
        _TOGETHER,
    ),
    Mutant(
        "a large file is in memory at once",
        "if each.segment.row_count <= SMALL_FILE_ROWS:",
        "if True:",
        _TOGETHER,
    ),
    Mutant(
        "what cannot be evaluated together is tried together for each file",
        "            self._places.pop(key, None)\n",
        "",
        _TOGETHER,
    ),
    Mutant("a start evaluates each small file by itself", "        ahead.before(number)\n", "", _TOGETHER),
    Mutant(
        "what changes in between is asked of no file ahead",
        "takewhile(lambda each: each.kind not in _CHANGES,",
        "takewhile(lambda _: True,",
        _TOGETHER,
    ),
    Mutant(
        "each commit is evaluated by itself",
        "                self._expect(message_type, coming)\n",
        "                pass\n",
        _TOGETHER,
    ),
    Mutant(
        "all commits of a log are evaluated at once",
        "if file_count >= most_files or entry.commit is not None or",
        "if entry.commit is not None or",
        _TOGETHER,
    ),
    Mutant(
        "commits enter again with those that follow",
        "                yield coming\n                coming, file_count = [], 0\n",
        "                yield coming\n                file_count = 0\n",
        _TOGETHER,
    ),
    Mutant(
        "an entry that is not whole keeps commits out that were read with it",
        "        # What was read before the trouble enters.\n        yield coming\n",
        "",
        _TOGETHER,
    ),
    Mutant(
        "each look reads what waits behind a commit that cannot enter",
        "most_files = 1 if message_type in self.trouble else FORESEEN_FILES",
        "most_files = FORESEEN_FILES",
        _TOGETHER,
    ),
    Mutant(
        "a changed priority evaluates each small file by itself",
        "source = self.traits.ahead([segment for segment, _ in standing], [request])",
        "source = self.traits",
        _TOGETHER,
    ),
    Mutant(
        "a queue that begins evaluates each small file by itself",
        "source = self.traits.ahead(segments, self.trait_requests(ledgers, told=barriers))",
        "source = self.traits",
        _TOGETHER,
    ),
    Mutant(
        "barriers that are there already are found file by file",
        "source = self.traits.ahead(segments, [request])",
        "source = self.traits",
        _TOGETHER,
    ),
    Mutant(
        "what is about to enter is read again for what asks ahead",
        "if self._known(segment, wanted) is None)",
        ")",
        _PREPARED,
    ),
    Mutant(
        "new definitions over many files make no snapshot due",
        "self._replayed + self._applied * files",
        "self._replayed",
        _UPKEEP,
    ),
)

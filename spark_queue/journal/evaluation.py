"""Values of expressions for every row of message files; those of many small files are found at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_queue.core.bitmaps.ranges import to_array
from spark_queue.core.message_files.segment import Letters, Segment
from spark_queue.errors import ConfigError, JournalError
from spark_queue.expression import Found, Wanted
from spark_queue.journal.expressions import LETTER_COLUMNS, beside_letters, program
from spark_queue.journal.message_file import MessageFiles
from spark_queue.journal.opening import AHEAD_FILES
from spark_queue.journal.read_ahead import read_ahead

if TYPE_CHECKING:
    from spark_queue.expression.program import Program

#: Files with more rows are evaluated alone: what a query costs by itself, some milliseconds, is little then.
SMALL_FILE_ROWS = 1_024

#: Rows and bytes of small files from which on they are enough for one query.
TOGETHER_ROWS = 8_192
TOGETHER_BYTES = 32 * 1024 * 1024

#: The path of a segment's file, its first bookmark, and the columns.
_Key: TypeAlias = tuple[str, int, str]


class Question(NamedTuple):
    """Expressions whose values are wanted for every row of a segment, over columns in Spark DDL."""

    segment: Segment
    wanted: tuple[Wanted, ...]
    columns: str


class Evaluation:
    """Evaluates expressions over one segment at a time; with `letters` these may ask why dead letters died."""

    def __init__(self, files: MessageFiles, letters: Letters | None = None) -> None:
        self._files = files
        self._letters = None if letters is None else _LetterColumns(letters)

    def run(self, question: Question) -> Mapping[Wanted, Found]:
        """Return the values of each expression."""
        segment, wanted, columns = question
        try:
            asked = self._program(question)
        except ConfigError as refusal:
            if len(wanted) > 1:
                # Each was accepted by itself; together they are too long.
                half = len(wanted) // 2
                parts = (question._replace(wanted=part) for part in (wanted[:half], wanted[half:]))
                return {each: found for part in parts for each, found in self.run(part).items()}
            facts = {name: refusal.facts[name] for name in ("what", "text", "reason", "next_step")}
            raise JournalError("EXPRESSION_UNUSABLE", message_type=segment.message_type, **facts) from refusal
        return asked.run_over(self._pieces(segment, columns, asked))

    def _program(self, question: Question) -> Program:
        return program(question.wanted, question.columns, of_letters=self._letters is not None)

    def _pieces(self, segment: Segment, columns: str, asked: Program) -> Iterable[pa.Table]:
        """Return the columns that a program needs, part by part; where it needs none, no file is read."""
        letters = self._letters
        names = [] if letters is None else [field.name for field in LETTER_COLUMNS if field.name in asked.columns]
        own = {} if letters is None else {shown: name for name, shown in beside_letters(columns).items()}
        stored = {own.get(name, name): name for name in asked.columns if name not in names}
        if not stored:
            self._files.check_size(segment)
        rows = self._files.pieces(segment, list(stored)) if stored else [pa.table({"row": pa.nulls(segment.row_count)})]
        return rows if letters is None else letters.beside(rows, segment, names, stored)


class EvaluationAhead(Evaluation):
    """Evaluates small files many at once, which are asked for one after the other in the order of `questions`."""

    def __init__(self, files: MessageFiles, questions: Iterable[Question], letters: Letters | None = None) -> None:
        super().__init__(files, letters)
        #: The place of each question among those that one program answers, until it is evaluated with others or alone.
        self._places: dict[_Key, tuple[list[Question], int]] = {}
        #: Values for questions that come next.
        self._found: dict[_Key, Mapping[Wanted, Found]] = {}
        alike: dict[tuple[tuple[Wanted, ...], str], list[Question]] = {}
        for each in questions:
            if each.segment.row_count <= SMALL_FILE_ROWS:
                of_program = alike.setdefault((each.wanted, each.columns), [])
                self._places[_key(each)] = (of_program, len(of_program))
                of_program.append(each)

    def run(self, question: Question) -> Mapping[Wanted, Found]:
        """Return the values of each expression."""
        key = _key(question)
        if key in self._places:
            # A failure is that of some file, which fails again when it is evaluated alone.
            with suppress(Exception):
                self._run_from(*self._places[key])
        found = self._found.pop(key, {})
        if not found.keys() >= set(question.wanted):
            return super().run(question)
        return {each: found[each] for each in question.wanted}

    def _run_from(self, alike: Sequence[Question], place: int) -> None:
        """Evaluate as many files from a place on as are enough for one query."""
        asked, first = self._program(alike[place]), alike[place].segment
        following = map(alike.__getitem__, range(place, len(alike)))
        near = takewhile(lambda each: each.segment.merged == first.merged, following)
        # What stands in one merged file is read once, for one after the other.
        at_once = AHEAD_FILES if self._files.is_far(first) and not first.merged else 1
        taken: list[tuple[_Key, int]] = []
        tables: list[pa.Table] = []
        rows = size_bytes = 0
        for key, pieces in read_ahead(lambda each: (_key(each), self._small(each, asked)), near, at_once=at_once):
            self._places.pop(key, None)
            if pieces is None:
                break
            taken.append((key, sum(map(len, pieces))))
            tables += pieces
            rows, size_bytes = rows + taken[-1][1], size_bytes + sum(piece.nbytes for piece in pieces)
            if rows >= TOGETHER_ROWS or size_bytes >= TOGETHER_BYTES:
                break
        if len(taken) > 1:
            values, first_row = asked.run(pa.concat_tables(tables)), 0
            for key, count in taken:
                part = slice(first_row, first_row + count)
                self._found[key] = {wanted: Found(*(array[part] for array in found)) for wanted, found in values.items()}
                first_row += count

    def _small(self, question: Question, asked: Program) -> list[pa.Table] | None:
        """Return the columns of a file that a program needs; None where they are too large, or cannot be read."""
        pieces: list[pa.Table] = []
        with suppress(Exception):
            for piece in self._pieces(question.segment, question.columns, asked):
                pieces.append(asked.given(piece))
                if sum(each.nbytes for each in pieces) > TOGETHER_BYTES:
                    return None
            return pieces
        return None


def _key(question: Question) -> _Key:
    return question.segment.path, question.segment.first, question.columns


class _LetterColumns:
    """Why dead letters died, as columns beside those of their messages."""

    def __init__(self, letters: Letters) -> None:
        bookmarks = [to_array(rows) for rows, _, _ in letters]
        order = np.argsort(found := np.concatenate([np.empty(0, np.int64), *bookmarks]), kind="stable")
        self._bookmarks = found[order]
        # The first of the texts is that of messages that are no letters.
        numbers = np.repeat(np.arange(1, len(letters) + 1), [len(each) for each in bookmarks])
        self._numbers: NDArray[np.int64] = numbers[order]
        self._texts = {
            "reason": pa.array([None, *(reason for _, reason, _ in letters)], pa.string()),
            "error": pa.array([None, *(error for _, _, error in letters)], pa.string()),
        }

    def beside(
        self, pieces: Iterable[pa.Table], segment: Segment, names: list[str], shown: Mapping[str, str]
    ) -> Iterator[pa.Table]:
        """Yield pieces of stored columns by their names beside letters, and some columns of these."""
        numbers = np.zeros(segment.row_count, dtype=np.int64)
        low, high = np.searchsorted(self._bookmarks, [segment.first, segment.until])
        numbers[self._bookmarks[low:high] - segment.first] = self._numbers[low:high]
        first = 0
        for piece in pieces:
            of_piece = pa.array(numbers[first : first + len(piece)], pa.int64())
            first += len(piece)
            piece = piece.rename_columns([shown.get(name, name) for name in piece.column_names])
            for name in names:
                piece = piece.append_column(name, self._texts[name].take(of_piece))
            yield piece

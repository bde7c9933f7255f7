"""Bugs in what becomes of texts and log entries that nobody thought of (DESIGN 4, 8)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LIMITS = ("tests/unit/expression/test_limits.py",)
_ODD = ("tests/unit/journal/test_odd_entries.py",)
_REFUSED = ("tests/unit/journal/test_traits_refused.py",)

HOSTILE = (
    Mutant(
        "what a library raises for an expression is no refusal",
        "    except SparkQueueError:\n        raise\n",
        "    except (SparkQueueError, ValueError, RecursionError):\n        raise\n",
        _LIMITS,
        within="refusals",
    ),
    Mutant(
        "how deep an expression may nest depends on who asks",
        "alone.submit(Program, wanted, usable).result()",
        "Program(wanted, usable)",
        _LIMITS,
    ),
    Mutant(
        "brackets are not counted before they are parsed",
        "if _nested(tokens) > _BRACKETS_MAX:",
        "if _nested(tokens) > 10_000:",
        _LIMITS,
    ),
    Mutant(
        "conditions side by side are a level each",
        "for each in node.flatten(unnest=False)",
        "for each in (node.this, node.expression)",
        _LIMITS,
    ),
    Mutant(
        "every level of an expression hands on what came before",
        "            needed = needed.union(*(level[name][1] for name in made))\n",
        "            needed = {step for step, at in self._level_of.items() if at < self._level_of[next(iter(level))]}\n",
        _LIMITS,
    ),
    Mutant(
        "what is evaluated after a condition is decided by the last one",
        'f"{{0}} >= {number}", value.fails, last',
        'f"{{0}} > {number}", value.fails, last',
        ("tests/unit/expression/test_expressions.py",),
    ),
    Mutant(
        "the loop translates what a call carries",
        "        self._prepare(who, request)\n",
        "",
        ("tests/unit/coordinator/test_translating_ahead.py",),
    ),
    Mutant(
        "a refused text is translated again by the loop",
        "            if refusal.__cause__ is not None:\n",
        "            if refusal:\n",
        ("tests/unit/coordinator/test_translating_ahead.py",),
    ),
    Mutant(
        "filters that are too long together are refused",
        "            if len(wanted) > 1:\n",
        "            if len(wanted) > 9:\n",
        _REFUSED,
    ),
    Mutant(
        "a file with other columns ends the coordinator",
        "    except Exception as raised:\n",
        "    except SparkQueueError as raised:\n",
        _REFUSED,
    ),
    Mutant(
        "a path in a log entry leads anywhere",
        'path = msgspec.convert({"path": add.path}, _Own).path',
        "path = add.path",
        _ODD,
    ),
    Mutant(
        "a link to a file elsewhere is read",
        " or not is_in_place(self.store, key):",
        ":",
        _ODD,
    ),
    Mutant(
        "an odd entry passes for one that a power loss has torn",
        "    except OddEntryError:\n        return False\n",
        "",
        _ODD,
    ),
    Mutant(
        "whatever an odd entry makes libraries raise is raised",
        "        except Exception as reason:",
        "        except KeyError as reason:",
        _ODD,
        within="_understood",
    ),
    Mutant(
        "a file has as many messages as its log entry says",
        "        if segment.record < 0:\n            self._files.check_size(segment)\n",
        "",
        _ODD,
    ),
    Mutant(
        "a log that cannot be kept short keeps the others long",
        "                troubles.append(trouble)\n",
        "                raise\n",
        ("tests/unit/journal/test_upkeep.py",),
    ),
    Mutant(
        "the log of one type tells that a reign is over",
        "            if self._is_over(epoch):\n",
        "            if epoch:\n",
        ("tests/unit/journal/test_upkeep.py",),
    ),
)

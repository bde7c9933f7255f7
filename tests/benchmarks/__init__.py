"""The budgets, measured: `make bench`. Nothing here is collected by the tests.

Each benchmark is a generator of figures in a module of its own; `catalogue` names them, `__main__` runs them, and `report`
keeps the figures of the last run in RESULTS.md. Rows that compare with the bare Delta source measure both in one session, in
turns, so that a slow moment of the machine meets both.
"""

from __future__ import annotations

import sys

from tests.source_tree import ROOT

# Jobs import their neighbours by bare name, as spark-submit makes it possible; whoever imports a job does too.
sys.path.append(str(ROOT / "jobs"))

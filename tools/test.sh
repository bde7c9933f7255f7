#!/usr/bin/env bash
# Run every test but the long forms: first those without a JVM, side by side, then those with one. Arguments go to pytest.
# SIMULATION_SEEDS says in how many simulated worlds the coordinator is tried (10000); TEST_WORKERS and SPARK_WORKERS how many
# processes share each part (2 and, because each holds a JVM, 1).
set -Eeuo pipefail
export SIMULATION_SEEDS=${SIMULATION_SEEDS:-10000}

has_chromium() {
  python -c 'import sys; from tests.unit.dashboard.finding import chromium; sys.exit(chromium() is None)'
}

if ! has_chromium && ! { tools/apt.sh chromium >&2 && has_chromium; }; then
  # The same list decides what is collected. With BROWSER_TESTS=required these tests are run all the same, and fail.
  python -c 'from tests.unit.dashboard.finding import told; print(told())' >&2
fi

status=0
python -m pytest -m "not spark and not slow" --numprocesses "${TEST_WORKERS:-2}" --dist worksteal "$@" || status=$?
python -m pytest -m "spark and not slow" --numprocesses "${SPARK_WORKERS:-1}" --dist loadfile "$@" || status=$?
exit "$status"

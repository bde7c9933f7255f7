#!/usr/bin/env bash
# Run every test but the long forms: those with a JVM, which wait much of the time, beside those without. What they print comes last.
# Arguments go to pytest. SIMULATION_SEEDS says in how many simulated worlds the coordinator is tried (10000); TEST_WORKERS and
# SPARK_WORKERS how many processes share each part (2 and 2).
set -Eeuo pipefail
export SIMULATION_SEEDS=${SIMULATION_SEEDS:-10000}
# Tests start dozens of JVMs for moments each: the thorough compiler and the parallel collector cost half of their processor time.
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

has_chromium() {
  python -c 'import sys; from tests.unit.dashboard.finding import chromium; sys.exit(chromium() is None)'
}

if ! has_chromium && ! { tools/apt.sh chromium >&2 && has_chromium; }; then
  # The same list decides what is collected. With BROWSER_TESTS=required these tests are run all the same, and fail.
  python -c 'from tests.unit.dashboard.finding import told; print(told())' >&2
fi

log=$(mktemp)
spark='' shown=''
trap 'kill $spark $shown 2>/dev/null || true; rm -f "$log"' EXIT
python -m pytest -m "spark and not slow" --numprocesses "${SPARK_WORKERS:-2}" --dist loadfile "$@" >"$log" 2>&1 &
spark=$!
status=0
python -m pytest -m "not spark and not slow" --numprocesses "${TEST_WORKERS:-2}" --dist worksteal "$@" || status=$?
tail -n +1 -f "$log" &
shown=$!
wait "$spark" || status=$?
spark=''
# What it has printed at last is shown, too.
sleep 2
exit "$status"

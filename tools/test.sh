#!/usr/bin/env bash
# Run the tests: those with a JVM, which wait much of the time, beside those without. What they print comes last.
# Arguments go to pytest. LONG_FORMS=1 runs everything. SIMULATION_SEEDS says in how many simulated worlds the
# coordinator is tried (45, about 180 with those of its parts), MODEL_PROGRAMS how many random programs meet the model (20), and
# SEED_WINDOW which ones (the commit says); TEST_WORKERS and SPARK_WORKERS how many processes share each part (4 and 2: many tests
# wait for others' clocks).
set -Eeuo pipefail
export SIMULATION_SEEDS=${SIMULATION_SEEDS:-45} MODEL_PROGRAMS=${MODEL_PROGRAMS:-20}
# Each commit looks at worlds and programs that no other has met. Without git they are the first ones.
commit=$(git rev-parse --short=8 HEAD 2>/dev/null) || commit=0
export SEED_WINDOW=${SEED_WINDOW:-$((16#${commit:0:6}))}
# The long forms run what is marked as slow, too, and every case of tests of which a commit draws some.
if [[ -n ${LONG_FORMS:-} ]]; then short=''; else short=' and not slow' && export DRAWN_CASES=1; fi
# Tests start dozens of JVMs for moments each: the thorough compiler and the parallel collector cost half of their processor time.
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Each Python that tests start does at first what is there.
export PYTHONPATH=$PWD/tests/startup:$PYTHONPATH

has_chromium() {
  python -c 'import sys; from tests.unit.dashboard.finding import chromium; sys.exit(chromium() is None)'
}

if ! has_chromium && ! { tools/apt.sh chromium >&2 && has_chromium; }; then
  # The same list decides what is collected. With BROWSER_TESTS=required these tests are run all the same, and fail.
  python -c 'from tests.unit.dashboard.finding import told; print(told())' >&2
fi

# Half of a JVM's first seconds are classes that are loaded: the first one stores them for all others.
tests_with_spark() {
  local archive=$PWD/.venv/spark-classes.jsa
  # Spark's scripts would take a path with a space apart.
  if [[ $archive != *' '* ]]; then
    [[ -e $archive ]] || python -m tests.spark_classes "$archive" || true
    SPARK_SUBMIT_OPTS+=" -XX:SharedArchiveFile=$archive -Xlog:cds*=off"
  fi
  # Suites that need no Java are not read: see SPARKLESS in tests/conftest.py. To ignore them does not keep pytest from it.
  exec python -m pytest --durations=10 -m "spark$short" -o testpaths="tests/integration tests/acceptance" --numprocesses "${SPARK_WORKERS:-2}" --dist loadfile "$@"
}

log=$(mktemp)
spark='' shown=''
trap 'kill $spark $shown 2>/dev/null || true; rm -f "$log"' EXIT
tests_with_spark "$@" >"$log" 2>&1 &
spark=$!
# The first time one process stores the tests' bytecode, with what pytest makes of their assertions, instead of each of six.
compgen -G 'tests/unit/__pycache__/*-pytest-*' >/dev/null || python -m pytest --collect-only -q >/dev/null 2>&1 || true
status=0
python -m pytest --durations=10 -m "not spark$short" --numprocesses "${TEST_WORKERS:-4}" --dist worksteal "$@" || status=$?
tail -n +1 -f "$log" &
shown=$!
wait "$spark" || status=$?
spark=''
# What it has printed at last is shown, too.
sleep 2
exit "$status"

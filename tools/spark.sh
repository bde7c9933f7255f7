#!/usr/bin/env bash
# Run the tests that need a JVM on another Spark, with the oldest packages that go with it: tools/spark.sh 4.0 [arguments of pytest]
# They run in a copy of this checkout, build/spark-VERSION, whose .venv has what tools/spark/VERSION.lock names, and else what .venv has.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
version=${1:-}
shift || true
lock=$root/tools/spark/$version.lock
if [[ ! -f $lock ]]; then
  echo "Name a version of Spark: one of $(cd tools/spark && echo *.lock | sed 's/\.lock//g')." >&2
  exit 2
fi

copy=$root/build/spark-$version
mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  # What is deleted and not yet committed is listed all the same.
  [[ ! -f $file ]] || printf '%s\0' "$file"
done | xargs -0 tar -cf - | tar -xf - -C "$copy"

stamp="$copy $(.venv/bin/python --version) $(cksum "$lock" requirements.lock)"
if [[ ! -f $copy/.venv/.stamp || $(<"$copy/.venv/.stamp") != "$stamp" ]]; then
  .venv/bin/python -m venv --clear "$copy/.venv"
  site=$("$copy/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # What is installed here comes first; what this project's own .venv has, behind it.
  printf '%s\n' "$copy" "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" >"$site/zz_base.pth"
  "$copy/.venv/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation --ignore-installed \
    --require-hashes --requirement "$lock"
  tools/bytecode.sh "build/spark-$version/.venv"
  cp .venv/.java-home "$copy/.venv/"
  for command in pytest sparkq; do
    sed "1s|.*|#!$copy/.venv/bin/python|" ".venv/bin/$command" >"$copy/.venv/bin/$command"
    chmod +x "$copy/.venv/bin/$command"
  done
  printf '%s\n' "$stamp" >"$copy/.venv/.stamp"
fi

cd "$copy"
jars=$(tools/run.sh python -c 'from spark_queue import session; print(*(jar.parent for jar in session.jars()[:1]))')
if [[ -n $jars ]]; then
  ln -sfn "$jars" .venv/delta-jars
else
  # Delta is not built for this one.
  sed -i.as-it-was '/delta/d' conf/spark-defaults.conf
fi
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
which='spark and not slow'
# What a version lacks: see spark_queue/session.py.
case $version in
  4.0 | 4.1) which+=' and not since_4_2' ;;
  *) which+=' and not delta' ;;
esac
if [[ $version == 4.0 ]]; then
  # What reads and writes journals has to do with the oldest Arrow. That refuses ancient times, and makes no views of texts.
  tools/run.sh python -m pytest -m 'not spark and not slow' --numprocesses "${SPARK_WORKERS:-2}" \
    -k 'not (test_value_is_stored_as_it_is and TIMESTAMP) and not test_topics_of_any_type' \
    tests/unit/journal tests/unit/receiver tests/unit/sinks tests/integration/test_receiving.py tests/integration/test_processing.py
fi
# Sockets that an older pyspark forgets to close are none of this project's.
tools/run.sh python -m pytest -p no:unraisableexception --durations=10 -m "$which" --numprocesses "${SPARK_WORKERS:-2}" --dist loadfile "$@"

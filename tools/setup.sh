#!/usr/bin/env bash
# Make .venv with the locked dependencies and this project, find a Java for Spark, and fetch Delta's jars; install what is
# missing where that takes no question, and say what to install where it does. A second run finds everything done.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly venv=.venv
readonly stamp_file=$venv/.setup-stamp
readonly java_home_file=$venv/.java-home

main() {
  if ! { usable_python "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    make_venv
  fi
  install_locked
  # As pip does with what it installs: Spark starts many Pythons, and some machines are set to store no bytecode by themselves.
  "$venv/bin/python" -m compileall -q spark_queue jobs pyspark_sparkqueue.py
  install_java
  fetch_delta_jars
}

make_venv() {
  local python package reason
  python=$(find_python) || python=$(install_python) || fail \
    "Python 3.11, 3.12 or 3.13 is needed, and none was found. Install one and run this again:" \
    "  Debian, Ubuntu: sudo apt-get install python3 python3-venv    (where python3 is 3.11 or newer)" \
    "  Fedora:         sudo dnf install python3.13" \
    "  macOS:          brew install python@3.13"
  say "Making $venv with $python."
  reason=$("$python" -m venv --clear "$venv" 2>&1) && return
  # Debian ships venv without pip unless this package is there.
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  tools/apt.sh "$package" || fail \
    "$reason" \
    "$python cannot make a virtual environment with pip. Install what it lacks and run this again:" \
    "  Debian, Ubuntu: sudo apt-get install $package" \
    "  elsewhere:      a Python that has the modules venv and ensurepip"
  "$python" -m venv --clear "$venv"
}

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
    if [[ -n $candidate ]] && usable_python "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

usable_python() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

install_python() {
  tools/apt.sh python3 python3-venv >&2 && find_python
}

install_locked() {
  local stamp built parts=$venv/parts pip=("$venv/bin/python" -m pip --disable-pip-version-check)
  stamp="$PWD $("$venv/bin/python" --version) $(cksum requirements.lock pyproject.toml)"
  [[ -f $stamp_file && $(<"$stamp_file") == "$stamp" ]] && return
  say "Installing the locked dependencies into $venv (Spark alone is 450 MB; the first time takes minutes)."
  # PySpark comes as sources: to make a wheel of it takes one processor as long as everything else, which another one fetches.
  rm -rf "$parts"
  mkdir "$parts"
  awk '/^[^ ]/ { named = /^pyspark==/ } named' requirements.lock >"$parts/pyspark.lock"
  awk '/^[^ ]/ { named = /^pyspark==/ } !named' requirements.lock >"$parts/others.lock"
  # The wheel is unpacked at once: compressing it takes as long as all else of it.
  "${pip[@]}" wheel --quiet --no-deps --config-settings=--build-option=--compression=stored --require-hashes \
    --requirement "$parts/pyspark.lock" --wheel-dir "$parts" &
  built=$!
  # The lock names all that they need of each other.
  if ! "${pip[@]}" install --no-compile --no-deps --require-hashes --requirement "$parts/others.lock"; then
    kill "$built" || true
    return 1
  fi
  wait "$built"
  "${pip[@]}" install --no-compile --no-deps "$parts"/pyspark-*.whl
  rm -r "$parts"
  # What most starts load is compiled on all processors, which pip does on one; the rest is when it is loaded first.
  (cd "$venv"/lib/python3.*/site-packages && "../../../bin/python" -m compileall -qq -j 0 grpc numpy pandas pyarrow pyspark) || true
  "${pip[@]}" install --quiet --no-deps --no-build-isolation --editable .
  tools/bytecode.sh "$venv"
  printf '%s\n' "$stamp" >"$stamp_file"
}

install_java() {
  local home
  home=$(find_java_home) || home=$(apt_install_java) || fail \
    "Spark needs Java 17 or 21, and none was found in JAVA_HOME, on the PATH or in the usual places. Install one:" \
    "  Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless    (or openjdk-21-jre-headless)" \
    "  Fedora:         sudo dnf install java-21-openjdk-headless" \
    "  macOS:          brew install openjdk@17" \
    "Or set JAVA_HOME to one that is there, and run this again."
  # What stands is left alone: others may be reading it.
  [[ -f $java_home_file && $(<"$java_home_file") == "$home" ]] || printf '%s\n' "$home" >"$java_home_file"
}

# Print the home of the first Java that Spark runs on. Spark itself would take the first Java of all.
find_java_home() {
  local java properties
  while IFS= read -r java; do
    properties=$("$java" -XshowSettings:properties -version 2>&1) || continue
    if grep -Eq 'java\.specification\.version = (17|21)$' <<<"$properties"; then
      sed -n 's/^ *java\.home = //p' <<<"$properties"
      return
    fi
  done < <(java_candidates)
  return 1
}

java_candidates() {
  local version
  [[ -z ${JAVA_HOME:-} ]] || printf '%s\n' "$JAVA_HOME/bin/java"
  command -v java || true
  if [[ -x /usr/libexec/java_home ]]; then
    for version in 17 21; do
      /usr/libexec/java_home -F -v "$version" 2>/dev/null | sed 's#$#/bin/java#' || true
    done
  fi
  printf '%s\n' /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk@*/bin/java /usr/local/opt/openjdk@*/bin/java
}

apt_install_java() {
  { tools/apt.sh openjdk-17-jre-headless || tools/apt.sh openjdk-21-jre-headless; } >&2 && find_java_home
}

# Fetch Delta's jars into the user's cache, where sessions look for them, and link to them for spark-submit.
fetch_delta_jars() {
  local jars
  jars=$(tools/run.sh python -c 'from spark_queue import session; print(session.jars()[0].parent)')
  [[ $(readlink "$venv/delta-jars" || true) == "$jars" ]] || ln -sfn "$jars" "$venv/delta-jars"
}

say() { printf '%s\n' "$@" >&2; }

fail() {
  say "$@"
  exit 1
}

main

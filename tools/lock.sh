#!/usr/bin/env bash
# Write requirements.lock anew from pyproject.toml: every dependency and build back end, for Linux and macOS, with hashes.
# Needs uv. Versions that the lock names stay as they are; pass --upgrade to take newer ones.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Wheels that lie on this machine alone must not lend the lock their hashes.
unset UV_FIND_LINKS

uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --fork-strategy fewest --all-extras \
  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --output-file requirements.lock "$@"

# What `make spark` puts over it: other Sparks, and the oldest packages that the dependencies allow.
over() {
  local version=$1
  shift
  printf '%s\n' "$@" | uv pip compile - --quiet --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-emit-find-links --no-annotate --no-header --output-file "tools/spark/$version.lock"
}
over 4.0 pyspark==4.0.1 pyarrow==19.0.1 numpy==2.1.3 pandas==2.2.3
over 4.1 pyspark==4.1.4 pyarrow==21.0.0
over 4.3 pyspark==4.3.0

#!/usr/bin/env bash
# Write requirements.lock anew from pyproject.toml: every dependency and build back end, for Linux and macOS, with hashes.
# Needs uv. Versions that the lock names stay as they are; pass --upgrade to take newer ones.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Wheels that lie on this machine alone must not lend the lock their hashes.
unset UV_FIND_LINKS

uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --fork-strategy fewest --all-extras \
  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --output-file requirements.lock "$@"

#!/usr/bin/env bash
# Add bytecode to the zips from which Spark's workers import pyspark, in a virtual environment: tools/bytecode.sh .venv
# They hold sources, which each worker would compile anew: 0.5 s, of the 10 s that Spark gives it to begin.
set -Eeuo pipefail
venv=$1
python=$PWD/$venv/bin/python
for zip in "$venv"/lib/python3.*/site-packages/pyspark/python/lib/*.zip; do
  rm -rf "$venv/zip"
  "$python" -m zipfile -e "$zip" "$venv/zip"
  # What tracebacks name is the source in the zip.
  "$python" -m compileall -q -b -s "$venv/zip" -p "$PWD/$zip" --invalidation-mode unchecked-hash "$venv/zip"
  (cd "$venv/zip" && "$python" -m zipfile -c ../zip.new *)
  mv "$venv/zip.new" "$zip"
  rm -rf "$venv/zip"
done

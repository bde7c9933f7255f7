#!/usr/bin/env bash
# Run a command with the project's Python and the Java that setup found, whatever else this machine has: tools/run.sh pytest
set -Eeuo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

JAVA_HOME=$(<"$root/.venv/.java-home")
export JAVA_HOME
export VIRTUAL_ENV="$root/.venv"
export PATH="$VIRTUAL_ENV/bin:$PATH"
# By name: where the path has a space, Spark's scripts take its first word for the command.
export PYSPARK_PYTHON=python PYSPARK_DRIVER_PYTHON=python
# A host name that resolves to nothing, or to a VPN, must not stop a local Spark.
export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
# Another Spark on this machine is not ours to use.
unset SPARK_HOME SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS
# Spark and tests start hundreds of processes: without bytecode on disk each of them compiles the project again.
unset PYTHONDONTWRITEBYTECODE
# Jobs find each other by name, as they do under spark-submit; benchmarks use what they share.
export PYTHONPATH="$root/jobs"

exec "$@"

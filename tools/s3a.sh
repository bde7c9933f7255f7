#!/usr/bin/env bash
# Fetch S3A and Spark's checkpoints for object stores into build/s3a, by Spark's own package resolution: benchmarks of a far store
# put them on Spark's class path. AWS's SDK alone is 690 MB, so `make setup` does without.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# As old as the Hadoop that Spark 4.2 brings, and the newest that there is of the other.
readonly hadoop=org.apache.hadoop:hadoop-aws:3.5.0 spark=org.apache.spark:spark-hadoop-cloud_2.13:4.1.1
readonly folder=build/s3a

[[ ! -d $folder ]] || exit 0
rm -rf "$folder.draft"
mkdir -p "$folder.draft"
touch "$folder.draft/nothing.py"
# What Spark brings, and what other stores than S3 need.
excluded=$(printf '%s,' org.apache.hadoop:hadoop-{annotations,azure,client-api,client-runtime,cloud-storage,huaweicloud} \
  com.fasterxml.jackson.{core,dataformat}:'*' com.google.cloud.bigdataoss:'*' com.microsoft.azure:'*' com.squareup.{okhttp3,okio}:'*' \
  commons-codec:'*' joda-time:'*' org.apache.httpcomponents:'*' org.eclipse.jetty:'*' org.slf4j:'*')
tools/run.sh spark-submit --master local --packages "$hadoop,$spark" --exclude-packages "${excluded%,}" \
  --conf "spark.jars.ivy=$PWD/$folder.draft" "$folder.draft/nothing.py"
# The same once more, 700 MB, lies in Ivy's cache.
mv "$folder.draft/jars" "$folder"
rm -rf "$folder.draft"

#!/usr/bin/env bash
# Install Debian or Ubuntu packages; fails without a word where there is no apt-get, or no right to use it unasked: tools/apt.sh PACKAGE
set -Eeuo pipefail

as_root() {
  if [[ $EUID -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

{ command -v apt-get && as_root true; } >/dev/null 2>&1 || exit 1
printf 'Installing %s with apt-get.\n' "$*" >&2
as_root apt-get install -qq -y --no-install-recommends "$@" ||
  { as_root apt-get update -qq && as_root apt-get install -qq -y --no-install-recommends "$@"; }

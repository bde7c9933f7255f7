#!/usr/bin/env bash
# Ask promtool what each alert rule says to made-up series. Where there is none, that of Debian or Ubuntu is unpacked below build/.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

promtool=$(command -v promtool) || promtool=build/promtool/usr/bin/promtool
if [[ ! -x $promtool ]]; then
  mkdir -p build/promtool
  (cd build/promtool && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .) || {
    printf '%s\n' "promtool is missing, and could not be had by apt-get. It comes with Prometheus:" \
      "  macOS: brew install prometheus" "  Debian, Ubuntu: sudo apt-get install prometheus" >&2
    exit 1
  }
fi
"$promtool" test rules tests/alerts.yml

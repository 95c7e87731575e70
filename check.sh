#!/usr/bin/env bash
# Checks every promise on the real code. `./check.sh --help` lists the options and the exit codes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/scripts/build-check"
# TLC, the model checker of TLA+, is fetched once. Without Java it would be of no use.
if [[ -z "${TLA2TOOLS_JAR:-}" && ! -f "$here/target/tla2tools.jar" ]] && command -v java >/dev/null; then
    "$here/scripts/fetch-tlc" >&2 ||
        echo 'check.sh: going on without TLC; what it found on an unchanged specification is recorded' >&2
fi
exec "$LASTWORD_CHECK" --root "$here" run "$@"

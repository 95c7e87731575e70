#!/usr/bin/env bash
# Checks every promise on the real code. `./check.sh --help` lists the options and the exit codes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/scripts/build-check"
exec "$LASTWORD_CHECK" --root "$here" run "$@"

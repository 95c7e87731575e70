#!/usr/bin/env bash
# Replays recorded counterexamples on the tokio runtime: all of them, or the files that are named.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/scripts/build-check"
exec "$LASTWORD_CHECK" --root "$here" replay "$@"

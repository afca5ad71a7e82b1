#!/usr/bin/env bash
# Opens the page in which runs are started, watched and stopped: scripts/start-ui.sh [flags of lockstep ui]
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lockstep.sh"
exec "$lockstep" ui "$@"

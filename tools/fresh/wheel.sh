#!/usr/bin/env bash
# A wheel in an empty environment, as a person who has no compiler uses it: wheel.sh WHEEL. pip brings torch; nothing else is given.
set -euo pipefail
wheel=$(realpath "$1")
folder=$(mktemp -d "${TMPDIR:-/tmp}/an empty environment XXXX")
cd "$folder"
python3 -m venv "my env"
"my env/bin/pip" install -q "$wheel"
export PATH="$folder/my env/bin:$PATH"
lockstep --version --verbose | sed -n 1,6p # head would end it by SIGPIPE
lockstep train -f nano --max-steps 20 --name fresh
python -m lockstep runs | grep fresh
python - <<'END'
import lockstep, torch
print("lockstep", lockstep.__version__, "beside torch", torch.__version__)
print(lockstep.attach("runs/fresh").generate("Once", max_tokens=8))
END
lockstep ui --port 0 >page.log 2>&1 &
page=$!
for _ in $(seq 100); do grep -q 'http://127' page.log && break; sleep 0.1; done
python -c 'import re, urllib.request; print("the page has", len(urllib.request.urlopen(re.search("http://127[.0-9:]+", open("page.log").read())[0]).read()), "bytes")'
kill "$page" && wait "$page" || true
pip uninstall -q -y lockstep
left=$(find "my env" -iname '*lockstep*')
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
cd / && rm -rf "$folder"
echo "the wheel is good"

#!/usr/bin/env bash
# Installs what only tests and checks need into .deps-test/: PyTorch as the reference, pytest, clang-format, clang-tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
stamp=.deps-test/installed
if ! cmp -s tools/requirements-test.txt "$stamp" 2>/dev/null; then
  [ -x .deps-test/bin/python ] || python3 -m venv .deps-test
  echo "setup: installing PyTorch (the reference of the parity tests) and the test tools into .deps-test/"
  .deps-test/bin/pip install --disable-pip-version-check --progress-bar off -q -r tools/requirements-test.txt
  cp tools/requirements-test.txt "$stamp"
fi
tools/setup-tokenizers.sh

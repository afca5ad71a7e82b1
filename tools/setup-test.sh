#!/usr/bin/env bash
# Installs what only tests and checks need into .deps-test/: PyTorch as the reference, pytest, clang-format, clang-tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/apt.sh
tools/setup.sh
# npm brings two real tokenizers and builds the page, iproute2 the network namespaces that stand for machines, chromium opens the page;
# zsh and fish read their completions, valgrind watches over the C library.
for pair in npm:npm ip:iproute2 chromium:chromium zsh:zsh fish:fish valgrind:valgrind; do
  command -v "${pair%%:*}" >/dev/null || [ -x "/sbin/${pair%%:*}" ] && continue
  if as_root true; then
    echo "setup: installing ${pair##*:} (for tests)"
    as_root apt-get update -qq
    install_packages "${pair##*:}"
  else
    echo "setup: ${pair##*:} is not here, so the tests that need it are skipped (apt-get install ${pair##*:} brings it)"
  fi
done
stamp=.deps-test/installed
if ! cmp -s tools/requirements-test.txt "$stamp" 2>/dev/null; then
  [ -x .deps-test/bin/python ] || python3 -m venv .deps-test
  echo "setup: installing the references of the parity tests and the test tools into .deps-test/"
  # PyTorch is there already: LibTorch is its C++ half, and the wheel brings both.
  for packages in .deps-test/lib/python3*/site-packages; do
    echo "$PWD/.deps/lib/$(basename "$(dirname "$packages")")/site-packages" >"$packages/libtorch.pth"
  done
  .deps-test/bin/pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar off -q -r tools/requirements-test.txt
  cp tools/requirements-test.txt "$stamp"
fi
tools/setup-tokenizers.sh

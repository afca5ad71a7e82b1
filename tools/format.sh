#!/usr/bin/env bash
# Formats all sources with clang-format and wraps the text of docs; --check only says which files are off.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh')
if [ "${1:-}" = --check ]; then
  .deps-test/bin/clang-format --dry-run -Werror "${files[@]}" || { echo "format: run 'make format'"; exit 1; }
  python3 tools/wrap_docs.py --check
  echo "format: good"
else
  .deps-test/bin/clang-format -i "${files[@]}"
  python3 tools/wrap_docs.py
fi

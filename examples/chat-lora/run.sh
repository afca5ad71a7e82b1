#!/usr/bin/env bash
# From nothing to a model that talks like a lighthouse keeper: tokenizer, base model, LoRA adapter, answers before and after.
#   examples/chat-lora/run.sh [FOLDER]      FOLDER (runs/chat-lora) holds all that is made; it may not exist yet
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
lockstep=${LOCKSTEP:-$here/../../build/bin/lockstep}
out=${1:-runs/chat-lora}
if [ -e "$out" ]; then
  echo "$out exists. Remove it, or name another folder: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$out"
say() { printf '\n== %s\n' "$*"; }
ask() {  # ask --model DIR ...: every question on its own, answered with the likeliest tokens
  sed 'a /reset' "$here/questions.txt" | "$lockstep" chat "$@" --device cpu --temperature 0 --max-tokens 60 |
    paste -d '\n' <(sed 's/^/> /' "$here/questions.txt") -
}

say "A tokenizer from the texts"
"$lockstep" data train-tokenizer --input "$here/plain.jsonl" "$here/chat.jsonl" --field messages --vocab-size 768 --chat-template chatml --output "$out/tokenizer"

say "A tiny model that answers plainly"
"$lockstep" train -f "$here/base.yaml" --data "$here/plain.jsonl" --tokenizer "$out/tokenizer" --device cpu --ranks 2 --output "$out" --name base
"$lockstep" export --run "$out/base" --output "$out/model"

say "An adapter that answers like a keeper"
"$lockstep" train -f "$here/keeper.yaml" --model "$out/model" --data "$here/chat.jsonl" --device cpu --ranks 2 --output "$out" --name keeper

say "Before"
ask --model "$out/model"
say "After"
ask --model "$out/model" --adapter "$out/keeper/adapter"

say "Merged"
"$lockstep" merge --model "$out/model" --adapter "$out/keeper/adapter" --output "$out/merged"

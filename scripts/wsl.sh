#!/usr/bin/env bash
# Called by the .bat files, in WSL: wsl.sh SCRIPT [arguments]. Starts the script beside it; what names a file of Windows becomes its path here.
set -euo pipefail

# C:\runs, C:/runs and \\server\runs are what wslpath says; my\run.yaml is my/run.yaml where that is a file. Anything else is no path.
here() {
  case $1 in
    [A-Za-z]:[\\/]* | \\\\*) wslpath -u "$1" 2>/dev/null || printf '%s\n' "$1" ;;
    *\\*) if [ -e "${1//\\//}" ]; then printf '%s\n' "${1//\\//}"; else printf '%s\n' "$1"; fi ;;
    *) printf '%s\n' "$1" ;;
  esac
}

script=$1
shift
words=()
for word in "$@"; do
  if [[ $word =~ ^([A-Za-z_.-]+=)(.*)$ ]]; then
    words+=("${BASH_REMATCH[1]}$(here "${BASH_REMATCH[2]}")") # --config-path=C:\run.yaml, data.path=D:\text
  else
    words+=("$(here "$word")")
  fi
done
exec bash "$(dirname "$0")/$script" "${words[@]}"

#!/usr/bin/env bash
# Builds the page for CMake: build_page.sh FOLDER DEPS makes FOLDER/embedded.cpp of web/. Packages by the lock file, kept in DEPS/web.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
packages=$2/web

# A build never fails for want of the page: what is missing is said on it, and the next build tries again.
make_do() {
  echo "page: $1; the program will serve a page that says so"
  rm -f "$folder/npm.txt"
  rm -rf "$folder/dist" && mkdir -p "$folder/dist"
  sed "s|@REASON@|$1|" "$root/web/without-npm.html" >"$folder/dist/index.html"
  cp "$root/web/without-npm.css" "$folder/dist/"
  exec python3 "$root/tools/embed_page.py" "$folder/dist" "$folder/embedded.cpp"
}

mkdir -p "$folder" "$packages"
command -v npm >/dev/null || make_do "npm was not found when this program was built"
(
  flock 9
  if ! cmp -s "$root/web/package-lock.json" "$packages/installed"; then
    cp "$root/web/package.json" "$root/web/package-lock.json" "$packages/"
    (cd "$packages" && npm ci --silent --no-audit --no-fund --ignore-scripts >npm.log 2>&1) || exit 1
    cp "$root/web/package-lock.json" "$packages/installed"
  fi
) 9>"$packages/lock" || make_do "npm could not fetch the packages of the page ($packages/npm.log)"

rm -rf "$folder/source" "$folder/dist"
cp -r "$root/web" "$folder/source"
ln -sfn "$packages/node_modules" "$folder/source/node_modules"
cd "$folder/source"
node node_modules/vite/bin/vite.js build --logLevel warn --outDir "$folder/dist" --emptyOutDir
exec python3 "$root/tools/embed_page.py" "$folder/dist" "$folder/embedded.cpp"

#!/bin/bash
# Makes the virtual environments that tests/frameworks runs in, at the versions of
# python-frameworks.txt.
#   deploy/python-frameworks.sh DIR           accelerate, tensorflow-jax: a minute, 2.2 GB
#   deploy/python-frameworks.sh DIR NAME...   these, such as newest-torch
# One that is there already, with these versions, is left as it is. Needs
# python3-venv and the network: PyPI, or what pip is configured to use instead.
set -euo pipefail

readonly LIST="$(dirname "${BASH_SOURCE[0]}")/python-frameworks.txt"
readonly PYTHON=/usr/bin/python3 # Debian's, whose PyTorch is to be found

die() {
  echo "python-frameworks: $*" >&2
  exit 1
}

# What stands after the name in the list's heading; nothing for most.
kind_of() {
  sed -n "s/^\[$1\(: \(.*\)\)\?\]$/\2/p" "$LIST"
}

packages_of() {
  awk -v name="$1" '
    /^\[/ { inside = ($0 == "[" name "]" || index($0, "[" name ":") == 1); next }
    inside && NF && !/^#/' "$LIST"
}

make_environment() { # NAME
  local dir="$DIR/$1" packages options=()
  packages="$(packages_of "$1")"
  [[ -n "$packages" ]] || die "unknown environment '$1'; python-frameworks.txt has: $(names | xargs)"
  if [[ "$(cat "$dir/made-of" 2>/dev/null)" == "$packages" ]]; then
    return
  fi
  [[ "$(kind_of "$1")" != "system packages" ]] || options=(--system-site-packages)
  echo "python-frameworks: $1: $(xargs <<<"$packages")"
  rm -rf "$dir"
  "$PYTHON" -m venv "${options[@]}" "$dir" || die "python3 -m venv failed; is python3-venv installed?"
  # shellcheck disable=SC2086: one argument a package
  "$dir/bin/pip" install --quiet --no-input --disable-pip-version-check $packages ||
    die "pip could not install $(xargs <<<"$packages"); is PyPI reachable?"
  echo "$packages" >"$dir/made-of"
}

names() {
  sed -n 's/^\[\([^]:]*\).*\]$/\1/p' "$LIST"
}

[[ $# -ge 1 ]] || die "usage: deploy/python-frameworks.sh DIR [NAME...]"
readonly DIR="$1"
shift
if [[ $# -eq 0 ]]; then
  for name in $(names); do
    [[ "$(kind_of "$name")" == "on demand" ]] || set -- "$@" "$name"
  done
fi
mkdir -p "$DIR"
for name in "$@"; do
  make_environment "$name"
done

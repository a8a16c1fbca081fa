#!/bin/bash
# Installs the Debian packages of deploy/packages.txt that are missing.
#   deploy/install-packages.sh [build|test]
# build (the default): what it takes to build; test: that, and what the tests
# use. Needs root or sudo only when something is missing.
set -euo pipefail

readonly LIST="$(dirname "${BASH_SOURCE[0]}")/packages.txt"
readonly UPDATE_TRIES=3
readonly RETRY_PAUSE_S=5

die() {
  echo "install-packages: $*" >&2
  exit 1
}

# The packages of one section of the list.
section() {
  awk -v want="[$1]" '/^\[/ { inside = ($0 == want); next } inside && NF && !/^#/' "$LIST"
}

missing_of() {
  local package
  for package in "$@"; do
    if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
      echo "$package"
    fi
  done
}

as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "must run as root, or with sudo installed, to install: ${missing[*]}"
  fi
}

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

case "${1:-build}" in
  build) mapfile -t wanted < <(section build) ;;
  test) mapfile -t wanted < <(section build; section test) ;;
  *) die "unknown set '$1'; say build or test" ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  die "this is not a Debian system; install the equivalents of: ${wanted[*]}"
fi

mapfile -t missing < <(missing_of "${wanted[@]}")
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

echo "install-packages: installing ${missing[*]}"
for ((try = 1; ; try++)); do
  if apt update; then
    break
  fi
  ((try < UPDATE_TRIES)) || die "apt-get update failed $try times; are the package servers reachable?"
  sleep "$RETRY_PAUSE_S"
done
apt install -y --no-install-recommends "${missing[@]}" ||
  die "apt-get could not install the packages above; this project is built on Debian 12 (bookworm)"

#!/bin/bash
# From a fresh Debian 12 to a trained network: installs what is needed, builds,
# and trains the example on four workers of this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deploy/install-packages.sh build
cmake --preset release
ninja -C build/release -j "$(nproc)" ddlaunch train_bin

echo "+ build/release/bin/ddlaunch --nproc_per_node=4 train_bin"
exec build/release/bin/ddlaunch --nproc_per_node=4 train_bin

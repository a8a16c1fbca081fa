#!/bin/bash
# Everything that must hold, in one command:
#   tests/run.sh         packages, format, release + tests (those with Accelerate,
#                        TensorFlow and JAX from PyPI too), thread sanitizer,
#                        address and undefined-behaviour sanitizers, a moment of
#                        each fuzz target, clang-tidy over what is shipped
#   tests/run.sh quick   packages, format, release + tests, the same
#   tests/run.sh tidy    packages, release, clang-tidy over every source, tests too
# Stops at the first stage that fails, with its exit code. Compiled objects are
# kept by ccache (CCACHE_DIR, ~/.cache/ccache), clang-tidy's verdicts beside
# them, so a second run takes a fraction of the first.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly MODE="${1:-full}"
case "$MODE" in
  full | quick | tidy) ;;
  *) echo "usage: tests/run.sh [quick|tidy]" >&2; exit 2 ;;
esac

JOBS="$(nproc)"
readonly JOBS
export CCACHE_DIR="${CCACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ccache}"
# Objects of one checkout serve another.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
export CTEST_OUTPUT_ON_FAILURE=1
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1"
# Sanitizers make the simulator ten times slower: they see fewer worlds.
readonly SANITIZED_SEEDS=2000

declare -a SUMMARY=()
passed=0
failed=0
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

report() {
  echo
  echo "tests/run.sh $MODE:"
  printf '  %s\n' "${SUMMARY[@]}"
  echo "$passed passed, $failed failed"
}

# stage NAME COMMAND...: runs it; on failure reports and ends with its code.
stage() {
  local name="$1" start=$SECONDS rc
  shift
  echo
  echo "== $name"
  "$@"
  rc=$?
  if [[ $rc -ne 0 ]]; then
    SUMMARY+=("FAILED  $name (exit $rc, $((SECONDS - start)) s)")
    [[ $failed -gt 0 ]] || failed=1
    report
    exit "$rc"
  fi
  SUMMARY+=("ok      $name ($((SECONDS - start)) s)")
}

check_format() {
  find agent launcher worker_sdk tests \( -name '*.h' -o -name '*.cc' \) -print0 |
    xargs -0 clang-format --dry-run -Werror
}

configure_and_build() {  # PRESET TARGET
  cmake --preset "$1" >"$log" || { cat "$log"; return 1; }
  ninja -C "build/$1" -j "$JOBS" "$2"
}

run_ctest() {  # PRESET [CTEST ARGUMENT...]
  local preset="$1" rc counts
  shift
  ctest --test-dir "build/$preset" -j "$JOBS" --no-tests=error "$@" | tee "$log"
  rc=${PIPESTATUS[0]}
  # "98% tests passed, 1 tests failed out of 57"
  counts="$(sed -n 's/^.* tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log")"
  if [[ -n "$counts" ]]; then
    failed=$((failed + ${counts% *}))
    passed=$((passed + ${counts#* } - ${counts% *}))
  fi
  return "$rc"
}

# Outside of the build, so that the next run finds them. Where PyPI cannot be
# reached their tests are skipped, and that is said.
make_frameworks() {
  local dir="${DDL_FRAMEWORKS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ddlaunch/frameworks}"
  if deploy/python-frameworks.sh "$dir"; then
    cmake -DDDL_FRAMEWORKS_DIR="$dir" build/release >"$log"
  else
    SUMMARY+=("SKIPPED Accelerate, TensorFlow and JAX: they could not be installed")
  fi
}

stage "packages" deploy/install-packages.sh test
stage "clang-format" check_format
stage "release build" configure_and_build release all
if [[ "$MODE" == tidy ]]; then
  stage "clang-tidy" tests/lint/tidy.py build/release
  passed=1
  report
  exit
fi
stage "python frameworks" make_frameworks
stage "release tests" run_ctest release
if [[ "$MODE" == full ]]; then
  stage "tsan build" configure_and_build tsan ddl_tsan_tests
  DDL_SIM_SEEDS=$SANITIZED_SEEDS stage "tsan tests" run_ctest tsan -L tsan
  stage "asan build" configure_and_build asan all
  DDL_SIM_SEEDS=$SANITIZED_SEEDS stage "asan tests" run_ctest asan -L '^(unit|golden|sim|integration|e2e)$'
  stage "fuzz build" configure_and_build fuzz ddl_fuzz_tests
  stage "fuzz tests" run_ctest fuzz -L '^fuzz$'
  stage "clang-tidy" tests/lint/tidy.py build/release /agent/ /launcher/ /worker_sdk/
fi
report

// From what the user wrote to what is executed: finds the program and the
// Python that may have to run it, and says so early when one is missing.
//
//   train.py          $PYTHON_EXEC, else python3 on PATH: python3 -u train.py
//   -m pkg.mod        python3 -u -m pkg.mod
//   anything else     executed as it is: an ELF binary or a #! script
//
// A name without a slash is looked for in the current directory, on PATH, and
// beside ddlaunch itself (so that the example trainer of a build tree is found
// by its name). Reads the file system; changes nothing.
#ifndef DDLAUNCH_LAUNCHER_CLI_PROGRAM_H_
#define DDLAUNCH_LAUNCHER_CLI_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/arguments.h"

namespace ddl::cli {

enum class ProgramMode : std::uint8_t {
  kDetect,    // a .py file by Python, everything else directly
  kModule,    // -m
  kNoPython,  // --no-python: directly, also a .py file
  kRunPath,   // --run-path: by Python's runpy
};

// Where names are looked for; a test gives its own.
struct SearchPlaces {
  std::string cwd;       // absolute
  std::string self_dir;  // ddlaunch's own directory, absolute; empty: unknown
};

struct ResolvedProgram {
  // argv[0] is absolute and executable.
  std::vector<std::string> argv;
  std::string python;  // the interpreter chosen; empty: none is needed
};

// Errors: NOT_FOUND, no such program, interpreter or Python (127);
// PERMISSION_DENIED, it is there and cannot be executed (126). Each says where
// was looked and what to do.
absl::StatusOr<ResolvedProgram> ResolveProgram(const std::string& program,
                                               const std::vector<std::string>& args,
                                               ProgramMode mode, const SearchPlaces& places,
                                               const Environment& environment);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_PROGRAM_H_

// Finding the program: see program.h.
#include "launcher/cli/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"

namespace ddl::cli {
namespace {

// What execve reads of a script's first line.
constexpr std::size_t kHeadBytes = 256;
// execvp's own, for an environment without PATH.
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

enum class FileKind : std::uint8_t { kMissing, kDirectory, kNotExecutable, kExecutable };

FileKind KindOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return FileKind::kMissing;
  }
  if (S_ISDIR(info.st_mode)) {
    return FileKind::kDirectory;
  }
  return ::access(path.c_str(), X_OK) == 0 ? FileKind::kExecutable : FileKind::kNotExecutable;
}

std::string Absolute(const std::string& path, const std::string& cwd) {
  return path.starts_with('/') ? path : absl::StrCat(cwd, cwd.ends_with('/') ? "" : "/", path);
}

// The first executable of this name on PATH, else the first that is there at
// all (it will be refused by name), else empty.
std::string FindOnPath(const std::string& name, const std::string& cwd,
                       const Environment& environment) {
  const auto it = environment.find("PATH");
  std::string_view path = it == environment.end() ? kDefaultPath : std::string_view(it->second);
  std::string not_executable;
  for (;;) {
    const std::size_t colon = path.find(':');
    const std::string entry(path.substr(0, colon));
    std::string file =
        entry.empty() ? Absolute(name, cwd) : absl::StrCat(Absolute(entry, cwd), "/", name);
    const FileKind kind = KindOf(file);
    if (kind == FileKind::kExecutable) {
      return file;
    }
    if (kind == FileKind::kNotExecutable && not_executable.empty()) {
      not_executable = file;
    }
    if (colon == std::string_view::npos) {
      return not_executable;
    }
    path.remove_prefix(colon + 1);
  }
}

// ---- what is inside an executable file --------------------------------------

// Its first bytes; nothing when it may be executed but not read.
std::optional<std::string> ReadHead(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::array<char, kHeadBytes> head{};
  const ssize_t size = fd.valid() ? ::read(fd.get(), head.data(), head.size()) : -1;
  if (size < 0) {
    return std::nullopt;
  }
  return std::string(head.data(), static_cast<std::size_t>(size));
}

// The words of a "#!" line.
std::vector<std::string> InterpreterWords(const std::string& head) {
  std::vector<std::string> words;
  const std::string line = head.substr(2, std::min(head.find('\n'), head.size()) - 2);
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != std::string::npos) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

absl::Status CheckInterpreter(const std::string& program, const std::string& head,
                              const std::string& cwd, const Environment& environment) {
  const std::vector<std::string> words = InterpreterWords(head);
  if (words.empty()) {
    return absl::PermissionDeniedError(
        absl::StrCat(program, ": its first line is '#!' without an interpreter"));
  }
  if (words.back().ends_with('\r')) {
    return absl::NotFoundError(absl::StrCat(
        program,
        ": its lines end as Windows writes them (CR LF), so that the interpreter in the "
        "first line is not found; convert it with: sed -i 's/\\r$//' ",
        program));
  }
  if (KindOf(Absolute(words[0], cwd)) != FileKind::kExecutable) {
    return absl::NotFoundError(absl::StrCat(program, ": its interpreter ", words[0],
                                            " is not there or cannot be executed"));
  }
  const bool by_env = words.size() == 2 && words[0].ends_with("/env") &&
                      words[1].find_first_of("-=/") == std::string::npos;
  if (by_env && FindOnPath(words[1], cwd, environment).empty()) {
    return absl::NotFoundError(
        absl::StrCat(program, ": its interpreter ", words[1], " is not on PATH"));
  }
  return absl::OkStatus();
}

// Refuses what execve would refuse later, or run by another program's chance.
absl::Status CheckFormat(const std::string& program, const std::string& path,
                         const std::string& cwd, const Environment& environment) {
  const std::optional<std::string> head = ReadHead(path);
  if (!head.has_value()) {
    return absl::OkStatus();
  }
  if (head->starts_with("#!")) {
    return CheckInterpreter(program, *head, cwd, environment);
  }
  // A binary format we do not know may be known to the kernel (binfmt_misc).
  const bool is_text = head->find('\0') == std::string::npos && !head->starts_with("\177ELF");
  if (is_text) {
    return absl::PermissionDeniedError(absl::StrCat(
        program,
        ": neither a binary nor a script with a first line such as #!/bin/sh; add one, "
        "or name a Python script NAME.py"));
  }
  return absl::OkStatus();
}

// ---- the program ------------------------------------------------------------

// "train: a directory"...: why a path that was found cannot be executed.
absl::Status CheckExecutable(const std::string& program, const std::string& path,
                             const std::string& cwd, const Environment& environment) {
  switch (KindOf(path)) {
    case FileKind::kMissing:
      return absl::NotFoundError(absl::StrCat(program, ": no such program"));
    case FileKind::kDirectory:
      return absl::PermissionDeniedError(
          absl::StrCat(program, ": a directory, not a program (a Python package runs by -m)"));
    case FileKind::kNotExecutable:
      return absl::PermissionDeniedError(absl::StrCat(program, ": not executable; run chmod +x ",
                                                      path, ", or name a Python script NAME.py"));
    case FileKind::kExecutable:
      return CheckFormat(program, path, cwd, environment);
  }
  return absl::OkStatus();
}

// A name without a slash: the current directory, PATH, beside ddlaunch. What
// can be executed comes before what only has the name.
absl::StatusOr<std::string> FindByName(const std::string& name, const SearchPlaces& places,
                                       const Environment& environment) {
  std::vector<std::string> candidates = {Absolute(name, places.cwd),
                                         FindOnPath(name, places.cwd, environment)};
  if (!places.self_dir.empty()) {
    candidates.push_back(absl::StrCat(places.self_dir, "/", name));
  }
  for (const FileKind wanted :
       {FileKind::kExecutable, FileKind::kNotExecutable, FileKind::kDirectory}) {
    for (const std::string& candidate : candidates) {
      if (!candidate.empty() && KindOf(candidate) == wanted) {
        return candidate;
      }
    }
  }
  return absl::NotFoundError(
      absl::StrCat(name, ": no such program in the current directory, on PATH or beside ddlaunch"));
}

absl::StatusOr<std::string> FindPython(const std::string& cwd, const Environment& environment) {
  const auto it = environment.find("PYTHON_EXEC");
  if (it == environment.end() || it->second.empty()) {
    std::string python = FindOnPath("python3", cwd, environment);
    if (KindOf(python) != FileKind::kExecutable) {
      return absl::NotFoundError(
          "no python3 on PATH; activate an environment that has one, or set PYTHON_EXEC");
    }
    return python;
  }
  std::string python = it->second.find('/') == std::string::npos
                           ? FindOnPath(it->second, cwd, environment)
                           : Absolute(it->second, cwd);
  if (KindOf(python) != FileKind::kExecutable) {
    return absl::NotFoundError(
        absl::StrCat("PYTHON_EXEC=", it->second, ": no such program, or not executable"));
  }
  return python;
}

absl::StatusOr<ResolvedProgram> ByPython(std::vector<std::string> python_args,
                                         const std::string& program,
                                         const std::vector<std::string>& args,
                                         const SearchPlaces& places,
                                         const Environment& environment) {
  DDL_ASSIGN_OR_RETURN(std::string python, FindPython(places.cwd, environment));
  ResolvedProgram resolved;
  resolved.argv = {python, "-u"};  // unbuffered: output is seen when it is printed
  resolved.python = std::move(python);
  std::move(python_args.begin(), python_args.end(), std::back_inserter(resolved.argv));
  resolved.argv.push_back(program);
  resolved.argv.insert(resolved.argv.end(), args.begin(), args.end());
  return resolved;
}

absl::Status CheckScript(const std::string& script, const std::string& cwd) {
  const std::string path = Absolute(script, cwd);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(
        absl::StrCat(script, ": ", std::generic_category().message(errno),
                     script.starts_with('/') ? "" : absl::StrCat(" (in ", cwd, ")")));
  }
  if (::access(path.c_str(), R_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(script, ": may not be read"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResolvedProgram> ResolveProgram(const std::string& program,
                                               const std::vector<std::string>& args,
                                               ProgramMode mode, const SearchPlaces& places,
                                               const Environment& environment) {
  if (mode == ProgramMode::kModule) {
    return ByPython({"-m"}, program, args, places, environment);
  }
  if (mode == ProgramMode::kRunPath) {
    DDL_RETURN_IF_ERROR(CheckScript(program, places.cwd));
    return ByPython({"-c",
                     "import runpy, sys; sys.argv = sys.argv[1:]; "
                     "runpy.run_path(sys.argv[0], run_name='__main__')"},
                    program, args, places, environment);
  }
  if (mode == ProgramMode::kDetect && program.ends_with(".py")) {
    DDL_RETURN_IF_ERROR(CheckScript(program, places.cwd));
    // Python would take -x.py for a flag of its own.
    const std::string script = program.starts_with('-') ? "./" + program : program;
    return ByPython({}, script, args, places, environment);
  }
  std::string path = Absolute(program, places.cwd);
  if (program.find('/') == std::string::npos) {
    DDL_ASSIGN_OR_RETURN(path, FindByName(program, places, environment));
  }
  DDL_RETURN_IF_ERROR(CheckExecutable(program, path, places.cwd, environment));
  ResolvedProgram resolved;
  resolved.argv.push_back(std::move(path));
  resolved.argv.insert(resolved.argv.end(), args.begin(), args.end());
  return resolved;
}

}  // namespace ddl::cli

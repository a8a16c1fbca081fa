// Reading the token: see token.h.
#include "launcher/cli/token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"

namespace ddl::cli {
namespace {

std::string Remedy(const std::string& file) {
  return absl::StrCat(
      "; give every node the same secret, made once by: (umask 077; head -c 32 "
      "/dev/urandom | base64 > ",
      file, ")");
}

// At most a byte more than a token with its newline can have.
absl::StatusOr<std::string> ReadSome(int fd) {
  std::array<char, limits::kMaxTokenBytes + 3> bytes{};
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return absl::InvalidArgumentError(std::generic_category().message(errno));
    }
    if (got == 0) {
      break;
    }
    size += static_cast<std::size_t>(got);
  }
  return std::string(bytes.data(), size);
}

bool IsToken(const std::string& text) {
  return !text.empty() && text.size() <= limits::kMaxTokenBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

std::string MustBeToken() {
  return absl::StrCat("one line of 1 to ", limits::kMaxTokenBytes, " printable characters");
}

void WarnOfReaders(const RawValue& raw, int fd, Notices& notices) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
      (info.st_mode & (S_IRGRP | S_IROTH)) == 0) {
    return;
  }
  constexpr mode_t kPermissions = 0777;
  notices.push_back({Notice::Level::kWarning,
                     absl::StrFormat("%s=%s: others may read it (mode %04o); chmod 600 it",
                                     raw.origin, raw.text, info.st_mode & kPermissions)});
}

absl::StatusOr<std::string> ReadTokenFile(const RawValue& raw, const std::string& cwd,
                                          Notices& notices) {
  if (raw.text.empty()) {
    return BadValue(raw, "must be a file");
  }
  const std::string path = raw.text.starts_with('/') ? raw.text : absl::StrCat(cwd, "/", raw.text);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return BadValue(raw, absl::StrCat(std::generic_category().message(errno), Remedy(raw.text)));
  }
  absl::StatusOr<std::string> text = ReadSome(fd.get());
  if (!text.ok()) {
    return BadValue(raw, absl::StrCat(std::string(text.status().message()), Remedy(raw.text)));
  }
  for (const char end : {'\n', '\r'}) {
    if (text->ends_with(end)) {
      text->pop_back();
    }
  }
  if (text->empty()) {
    return BadValue(raw, absl::StrCat("the file is empty", Remedy(raw.text)));
  }
  if (!IsToken(*text)) {
    return BadValue(raw, absl::StrCat("the file must hold ", MustBeToken(), Remedy(raw.text)));
  }
  WarnOfReaders(raw, fd.get(), notices);
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadToken(const Arguments& arguments, const Environment& environment,
                                      const std::string& cwd, Notices& notices) {
  if (const RawValue* const raw = arguments.Find(FlagId::kRdzvTokenFile); raw != nullptr) {
    return ReadTokenFile(*raw, cwd, notices);
  }
  const auto variable = environment.find(kTokenVariable);
  if (variable == environment.end()) {
    return std::string();
  }
  // An empty one is most likely a secret that was not mounted, and not a wish to
  // do without.
  if (!IsToken(variable->second)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTokenVariable, " must be ", MustBeToken(),
                     variable->second.empty() ? ", and it is empty; unset it to do without a token"
                                              : " (its value is not shown)"));
  }
  return variable->second;
}

}  // namespace ddl::cli

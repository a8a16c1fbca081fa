// The adapter to yaml-cpp: its events, not its tree, so that nothing that a file may
// ask for (aliases of aliases, say) is built up. What it throws ends here.
#include "launcher/cli/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "agent/base/edit_distance.h"
#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"

namespace ddl::cli {
namespace {

constexpr char kForm[] = "a line is NAME: VALUE, as in global-batch-size: 1024";

// What a message shows of a file's text: one line, not too long.
std::string Shown(const std::string& text) {
  constexpr std::size_t kMost = 60;
  std::string shown = text.size() > kMost ? absl::StrCat(text.substr(0, kMost), "...") : text;
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return shown;
}

// Only asks for a text, or would read another file.
bool IsForCommandLineOnly(const FlagSpec& flag) {
  return !ReadsVariables(flag) || flag.id == FlagId::kConfig;
}

// Of the commands that share a file.
constexpr std::array<Command, 3> kCommands = {Command::kLaunch, Command::kPlan, Command::kTune};

const FlagSpec* FindAnyFlag(const std::string& name) {
  for (const Command command : kCommands) {
    if (const FlagSpec* const flag = FindFlag(name, command); flag != nullptr) {
      return flag;
    }
  }
  return nullptr;
}

// First among those that count here.
std::string DidYouMeanKey(const std::string& name, Command command) {
  std::vector<std::string_view> nearest = NearestFlags(name, command);
  for (std::size_t i = 0; nearest.empty() && i < kCommands.size(); ++i) {
    nearest = NearestFlags(name, kCommands[i]);
  }
  return DidYouMean(nearest);
}

// Of a list for a flag that takes texts with commas between them.
std::string WithoutCommas(const std::string& item, const FlagSpec& flag) {
  const bool of_texts =
      flag.id == FlagId::kDuplicateStdoutFilters || flag.id == FlagId::kDuplicateStderrFilters;
  return of_texts ? absl::StrReplaceAll(item, {{",", ",,"}}) : item;
}

// Takes the parser's events. After the first error it takes no more notice.
class Reader final : public YAML::EventHandler {
 public:
  Reader(std::string name, Command command) : name_(std::move(name)), command_(command) {}

  [[nodiscard]] const absl::Status& error() const { return error_; }
  std::map<FlagId, RawValue> TakeValues() { return std::move(values_); }

  void Fail(const YAML::Mark& mark, const std::string& why) {
    if (error_.ok()) {
      error_ =
          absl::InvalidArgumentError(mark.is_null() ? absl::StrCat(name_, ": ", why)
                                                    : absl::StrCat(name_, ":", mark.line + 1, ":",
                                                                   mark.column + 1, ": ", why));
    }
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      Fail(mark, "a second document begins here; one file holds one");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (Refused(mark, "", anchor)) {
      return;
    }
    if (depth_ == 0) {
      return;  // an empty document
    }
    Fail(mark, is_key_ ? absl::StrCat("a name is missing; ", kForm)
                       : absl::StrCat(key_name_, " has no value (the word null is one in quotes)"));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Fail(mark, "aliases (*name) are not taken here; write the value itself");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (Refused(mark, tag, anchor)) {
      return;
    }
    if (depth_ == 0) {
      Fail(mark, absl::StrCat("flags are expected here, not a text; ", kForm));
    } else if (is_key_) {
      TakeKey(mark, value);
    } else if (value.find('\0') != std::string::npos) {
      Fail(mark, absl::StrCat(key_name_, " has a NUL byte in its value"));
    } else if (list_.has_value()) {
      list_->push_back(value);
    } else {
      TakeValue(value);
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    if (Refused(mark, tag, anchor)) {
      return;
    }
    if (depth_ == 0 || is_key_) {
      Fail(mark, absl::StrCat("a list cannot stand here; ", kForm));
    } else if (list_.has_value()) {
      Fail(mark, absl::StrCat(key_name_, " takes no list within a list"));
    } else if (key_ == nullptr || !key_->takes_list()) {
      Fail(mark, absl::StrCat(key_name_, " takes one value, not a list"));
    } else {
      list_.emplace();
    }
  }
  void OnSequenceEnd() override {
    if (error_.ok() && list_.has_value()) {
      std::vector<std::string> items = *std::exchange(list_, std::nullopt);
      for (std::string& item : items) {
        item = WithoutCommas(item, *key_);
      }
      TakeValue(absl::StrJoin(items, ","));
    }
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    if (Refused(mark, tag, anchor)) {
      return;
    }
    if (depth_ > 0) {
      Fail(mark, is_key_ ? absl::StrCat("a map cannot be a name; ", kForm)
                         : absl::StrCat(key_name_,
                                        " takes one value, not a map; names do not nest here"));
      return;
    }
    depth_ = 1;
    is_key_ = true;
  }
  void OnMapEnd() override {}

 private:
  // Nothing is to be done about this event, or not any more.
  bool Refused(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      Fail(mark, "anchors (&name) are not taken here; write the value itself");
    } else if (!tag.empty() && tag != "?" && tag != "!") {  // plain and quoted
      Fail(mark, absl::StrCat("tags (", Shown(tag), ") are not taken here"));
    }
    return !error_.ok();
  }

  void TakeKey(const YAML::Mark& mark, const std::string& key) {
    key_name_ = Shown(key);
    key_ = FindAnyFlag(key);
    if (key_ == nullptr) {
      const bool of_coordinator = FindFlag(key, Command::kCoordinator) != nullptr;
      Fail(mark,
           absl::StrCat(key_name_,
                        of_coordinator ? ": only for ddlaunch coordinator, which reads no file"
                                       : ": no such flag",
                        of_coordinator ? "" : DidYouMeanKey(key, command_)));
      return;
    }
    if (IsForCommandLineOnly(*key_)) {
      Fail(mark, absl::StrCat(key_name_, ": only for the command line, not for a file"));
      return;
    }
    const auto [it, is_new] = lines_.emplace(key_->id, mark.line + 1);
    if (!is_new) {
      Fail(mark, absl::StrCat(key_name_, " is given twice, first in line ", it->second));
      return;
    }
    is_key_ = false;
  }

  void TakeValue(std::string value) {
    if (key_->BelongsTo(command_)) {
      values_[key_->id] = {std::move(value),
                           absl::StrCat(name_, ":", lines_[key_->id], ": ", key_->name.data())};
    }
    is_key_ = true;
  }

  const std::string name_;
  const Command command_;
  absl::Status error_;
  int documents_ = 0;
  int depth_ = 0;                  // 1: within the map
  bool is_key_ = false;            // the next scalar of the map is a name
  const FlagSpec* key_ = nullptr;  // of the value that comes next
  std::string key_name_;           // as the file spells it
  std::optional<std::vector<std::string>> list_;
  std::map<FlagId, int> lines_;
  std::map<FlagId, RawValue> values_;
};

}  // namespace

absl::StatusOr<std::map<FlagId, RawValue>> ParseConfig(std::string_view text,
                                                       const std::string& name, Command command) {
  Reader reader(name, command);
  try {
    // yaml-cpp takes a line break at the end for the quote that closes a text, and with
    // it all that lies between.
    const std::string_view lines = text.substr(0, text.find_last_not_of("\r\n") + 1);
    std::istringstream stream{std::string(lines)};
    YAML::Parser parser(stream);
    while (reader.error().ok() && parser.HandleNextDocument(reader)) {
    }
  } catch (const YAML::Exception& error) {
    reader.Fail(error.mark, absl::StrCat("this is no YAML: ", Shown(error.msg)));
  } catch (const std::exception& error) {
    reader.Fail(YAML::Mark::null_mark(), absl::StrCat("this is no YAML: ", Shown(error.what())));
  }
  DDL_RETURN_IF_ERROR(reader.error());
  return reader.TakeValues();
}

absl::StatusOr<std::map<FlagId, RawValue>> ReadConfigFile(const RawValue& path, Command command) {
  // Not to wait for somebody to open the other end of a pipe.
  const UniqueFd fd(::open(path.text.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0) {
    return BadValue(path, ErrnoText("cannot be read", errno));
  }
  if (S_ISDIR(about.st_mode)) {
    return BadValue(path, "this is a directory; a YAML file is wanted");
  }
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  const std::string text = ReadUpTo(fd.get(), kMaxConfigBytes + 1);
  // ReadUpTo() takes an error for the end; half a file is not what the user wrote.
  char beyond = 0;
  if (text.size() <= kMaxConfigBytes && ::read(fd.get(), &beyond, 1) < 0) {
    return BadValue(path, ErrnoText("cannot be read", errno));
  }
  if (S_ISFIFO(about.st_mode) && text.empty()) {
    return BadValue(path, "this is a pipe that nobody has written to");
  }
  if (text.size() > kMaxConfigBytes) {
    return BadValue(
        path, absl::StrCat("it is larger than ", kMaxConfigBytes, " bytes, and no file of flags"));
  }
  return ParseConfig(text, path.text, command);
}

}  // namespace ddl::cli

// Finds where the program begins, then lets CLI11 read the flags before it.
//
// CLI11 alone would take an unknown flag for the start of the program, knows no
// argparse-like abbreviations, and reads "--flag=" as a flag whose value is the
// next word. So the flags are spelt out first: full names, values apart.
#include "launcher/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/check.h"
#include "agent/base/edit_distance.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/config_file.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

std::string LongFlag(const FlagSpec& flag) {
  return absl::StrCat("--", std::string(flag.name));
}

// "coordinator", the command's word; empty for a launch.
std::string WordOf(Command command) {
  switch (command) {
    case Command::kLaunch:
      return "";
    case Command::kCoordinator:
      return " coordinator";
    case Command::kPlan:
      return " plan";
    case Command::kTune:
      return " tune";
  }
  return "";
}

// Why a flag of `other` is none of `command`.
std::string NotHere(const FlagSpec& flag, Command command, Command other) {
  if (command == Command::kCoordinator) {
    return "the nodes of a job give it, not the coordinator (see ddlaunch coordinator --help)";
  }
  if (command == Command::kTune && flag.command == FlagSpec::Of::kChosen) {
    return "ddlaunch tune chooses it; --min-micro-batch-size and --max-micro-batch-size bound the "
           "search";
  }
  if (command == Command::kTune && flag.BelongsTo(Command::kLaunch)) {
    return "it has no meaning in ddlaunch tune, whose trials are short runs on one node with their "
           "output in --tune-dir (see ddlaunch tune --help)";
  }
  return absl::StrCat("only for ddlaunch", WordOf(other), " (see ddlaunch", WordOf(other),
                      " --help)");
}

// `name` is that of a long flag, or the letters of short ones.
absl::Status UnknownFlag(const std::string& word, const std::string& name, Command command) {
  const std::string see = absl::StrCat("see ddlaunch", WordOf(command), " --help");
  for (const Command other :
       {Command::kCoordinator, Command::kLaunch, Command::kPlan, Command::kTune}) {
    const FlagSpec* const flag =
        word.starts_with("--") ? FindFlag(name, other) : FindShortFlag(name.front(), other);
    if (flag != nullptr && !flag->BelongsTo(command)) {
      return absl::InvalidArgumentError(absl::StrCat(word, ": ", NotHere(*flag, command, other)));
    }
  }
  const bool runs_program = command == Command::kLaunch || command == Command::kTune;
  return absl::InvalidArgumentError(absl::StrCat(
      word, ": no such flag", DidYouMean(NearestFlags(name, command), "--"),
      runs_program ? absl::StrCat(" (the program's own flags go after its name; ", see, ")")
                   : absl::StrCat(" (", see, ")")));
}

// "-1", "-.5": argparse's rule for what is a value though it begins as a flag does.
bool IsNegativeNumber(const std::string& word) {
  const std::size_t point = word.find('.');
  const std::string whole = word.substr(1, point == std::string::npos ? point : point - 1);
  const std::string fraction = point == std::string::npos ? "" : word.substr(point + 1);
  return (whole + fraction).find_first_not_of("0123456789") == std::string::npos &&
         !(point == std::string::npos ? whole : fraction).empty();
}

// Like argparse, so that a value that was forgotten is not the next flag. A text with
// a space in it is a value.
bool LooksLikeFlag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word.find(' ') == std::string::npos &&
         !IsNegativeNumber(word);
}

// The value of the flag `word` is the next word; INVALID_ARGUMENT: there is none.
absl::StatusOr<std::string> ValueAfter(const std::vector<std::string>& args, std::size_t index,
                                       const FlagSpec& flag) {
  const std::string& word = args[index];
  const std::string needs =
      absl::StrCat(word, " needs a value (", std::string(flag.value_name), ")");
  if (index + 1 == args.size()) {
    return absl::InvalidArgumentError(needs);
  }
  const std::string& value = args[index + 1];
  if (LooksLikeFlag(value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        needs, ", and ", value, " looks like the next flag; if it is the value, write ",
        LongFlag(flag), "=", value));
  }
  return value;
}

// By its full name, or by a beginning that only one flag has. What is short enough
// for torchrun is for ddlaunch, which has more flags; but not a letter or two,
// which are more likely meant for one of those.
absl::StatusOr<const FlagSpec*> ResolveLongFlag(const std::string& name, Command command) {
  constexpr std::size_t kLeastLetters = 3;
  if (const FlagSpec* const flag = FindFlag(name, command); flag != nullptr) {
    return flag;
  }
  std::vector<const FlagSpec*> candidates = FlagsStartingWith(name, command);
  if (name.size() >= kLeastLetters && candidates.size() > 1) {
    std::vector<const FlagSpec*> torchruns;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(torchruns),
                 [](const FlagSpec* flag) { return IsTorchruns(*flag); });
    if (torchruns.size() == 1) {
      candidates = std::move(torchruns);
    }
  }
  if (candidates.size() == 1) {
    return candidates.front();
  }
  if (candidates.empty()) {
    return UnknownFlag("--" + name, name, command);
  }
  std::string names;
  for (const FlagSpec* const flag : candidates) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", LongFlag(*flag));
  }
  return absl::InvalidArgumentError(absl::StrCat("--", name, " is ambiguous; it could be ", names));
}

// Asks for a text on stdout and nothing else.
bool EndsTheLine(const FlagSpec& flag) {
  return flag.id == FlagId::kHelp || flag.id == FlagId::kVersion ||
         flag.id == FlagId::kPrintCompletion;
}

// The launcher's words, spelt out, and the index of what follows them.
struct Front {
  Command command = Command::kLaunch;
  std::vector<std::string> words;
  std::size_t program_index = 0;
  bool ended = false;  // by --help or the like: what follows cannot be wrong
};

// Takes the flag at `index`, with its value; returns the index after them.
absl::StatusOr<std::size_t> TakeLongFlag(const std::vector<std::string>& args, std::size_t index,
                                         Front& front) {
  const std::string& word = args[index];
  const std::size_t equals = word.find('=');
  const bool has_value = equals != std::string::npos;
  const std::string name = has_value ? word.substr(2, equals - 2) : word.substr(2);
  DDL_ASSIGN_OR_RETURN(const FlagSpec* const flag, ResolveLongFlag(name, front.command));
  front.words.push_back(LongFlag(*flag));
  front.ended = EndsTheLine(*flag);
  if (!flag->takes_value()) {
    if (has_value) {
      return absl::InvalidArgumentError(absl::StrCat(word, ": this flag takes no value"));
    }
    return index + 1;
  }
  if (has_value) {
    front.words.push_back(word.substr(equals + 1));
    return index + 1;
  }
  DDL_ASSIGN_OR_RETURN(std::string value, ValueAfter(args, index, *flag));
  front.words.push_back(std::move(value));
  return index + 2;
}

// The same for a group of one-letter flags: -qm, -r3, -r 3.
absl::StatusOr<std::size_t> TakeShortFlags(const std::vector<std::string>& args, std::size_t index,
                                           Front& front) {
  const std::string& word = args[index];
  front.words.push_back(word);
  for (std::size_t at = 1; at < word.size(); ++at) {
    const FlagSpec* const flag = FindShortFlag(word[at], front.command);
    if (flag == nullptr) {
      return UnknownFlag(word, word.substr(at), front.command);
    }
    if (flag->takes_value() && at + 1 < word.size()) {
      return index + 1;  // the rest of the word is the value
    }
    if (flag->takes_value()) {
      DDL_ASSIGN_OR_RETURN(std::string value, ValueAfter(args, index, *flag));
      front.words.push_back(std::move(value));
      return index + 2;
    }
    front.ended = front.ended || EndsTheLine(*flag);
  }
  return index + 1;
}

absl::StatusOr<Front> SplitFront(const std::vector<std::string>& args, Command command) {
  Front front;
  front.command = command;
  std::size_t index = 0;
  while (index < args.size() && !front.ended) {
    const std::string& word = args[index];
    if (word == "--") {
      ++index;
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      break;
    }
    DDL_ASSIGN_OR_RETURN(index, word[1] == '-' ? TakeLongFlag(args, index, front)
                                               : TakeShortFlags(args, index, front));
  }
  front.program_index = index;
  return front;
}

// CLI11's view of the table: one option each; the last of several wins.
class FlagReader {
 public:
  explicit FlagReader(Command command) : app_("ddlaunch") {
    app_.set_help_flag();
    for (const FlagSpec& flag : AllFlags()) {
      if (!flag.BelongsTo(command)) {
        continue;
      }
      std::string names = LongFlag(flag);
      if (flag.short_name != 0) {
        absl::StrAppend(&names, ",-", std::string(1, flag.short_name));
      }
      options_[Index(flag)] = flag.takes_value() ? app_.add_option(names)->take_last()
                                                 : app_.add_flag(names)->take_last();
    }
  }

  absl::StatusOr<std::map<FlagId, RawValue>> Read(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // CLI11 wants the first word last
    try {
      app_.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      return absl::InvalidArgumentError(error.what());
    }
    std::map<FlagId, RawValue> values;
    for (const FlagSpec& flag : AllFlags()) {
      const auto option = options_.find(Index(flag));
      if (option != options_.end() && option->second->count() > 0) {
        values[flag.id] = {flag.takes_value() ? ValueOf(flag, *option->second) : "1",
                           LongFlag(flag)};
      }
    }
    return values;
  }

 private:
  static std::size_t Index(const FlagSpec& flag) { return static_cast<std::size_t>(flag.id); }

  static std::string ValueOf(const FlagSpec& flag, const CLI::Option& option) {
    std::string text = option.results().back();
    if (flag.short_name != 0 && text.starts_with('=')) {
      text.erase(0, 1);  // -r=3
    }
    return text;
  }

  CLI::App app_;
  std::map<std::size_t, CLI::Option*> options_;  // owned by app_
};

void AddFromEnvironment(const Environment& environment, Command command,
                        std::map<FlagId, RawValue>& values) {
  for (const FlagSpec& flag : AllFlags()) {
    if (!ReadsVariables(flag) || !flag.BelongsTo(command)) {
      continue;
    }
    for (const std::string& variable : {PetVariable(flag), std::string(flag.other_variable)}) {
      const auto it = environment.find(variable);
      const bool says_no = variable == flag.other_variable && !flag.takes_value() &&
                           it != environment.end() && it->second != "1";
      if (it != environment.end() && !it->second.empty() && !says_no) {
        values.emplace(flag.id, RawValue{it->second, variable});  // the first one wins
      }
    }
  }
}

// --config: what neither the command line nor a variable said.
absl::Status AddFromFile(Command command, std::map<FlagId, RawValue>& values) {
  const auto config = values.find(FlagId::kConfig);
  if (config == values.end()) {
    return absl::OkStatus();
  }
  DDL_ASSIGN_OR_RETURN(auto from_file, ReadConfigFile(config->second, command));
  values.merge(std::move(from_file));
  return absl::OkStatus();
}

}  // namespace

const RawValue* Arguments::Find(FlagId id) const {
  const auto it = values.find(id);
  return it == values.end() ? nullptr : &it->second;
}

absl::StatusOr<Arguments> ScanArguments(const std::vector<std::string>& args,
                                        const Environment& environment, Command command) {
  DDL_ASSIGN_OR_RETURN(Front front, SplitFront(args, command));
  FlagReader reader(command);
  Arguments arguments;
  DDL_ASSIGN_OR_RETURN(arguments.values, reader.Read(std::move(front.words)));
  AddFromEnvironment(environment, command, arguments.values);
  if (!front.ended) {
    DDL_RETURN_IF_ERROR(AddFromFile(command, arguments.values));
  }
  if (front.program_index < args.size()) {
    arguments.program = args[front.program_index];
    arguments.program_args.assign(
        args.begin() + static_cast<std::ptrdiff_t>(front.program_index) + 1, args.end());
  }
  return arguments;
}

absl::Status BadValue(const RawValue& value, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(value.origin, "=", value.text, ": ", std::string(why)));
}

absl::StatusOr<bool> ReadSwitch(const Arguments& arguments, FlagId id) {
  DDL_ASSIGN_OR_RETURN(const std::optional<bool> on, ReadFlag(arguments, id, ParseBool));
  return on.value_or(false);
}

std::vector<std::string> UnknownPetVariables(const Environment& environment) {
  constexpr std::string_view kPrefix = "PET_";
  std::vector<std::string> unknown;
  for (auto it = environment.lower_bound(std::string(kPrefix));
       it != environment.end() && it->first.starts_with(kPrefix); ++it) {
    const bool known =
        std::any_of(AllFlags().begin(), AllFlags().end(), [&it](const FlagSpec& flag) {
          return ReadsVariables(flag) && flag.BelongsTo(Command::kLaunch) &&
                 PetVariable(flag) == it->first;
        });
    if (!known) {
      unknown.push_back(it->first);
    }
  }
  return unknown;
}

}  // namespace ddl::cli

// The texts of --help and --version, and the parts that the manual page shares.
#ifndef DDLAUNCH_LAUNCHER_CLI_HELP_H_
#define DDLAUNCH_LAUNCHER_CLI_HELP_H_

#include <span>
#include <string>
#include <string_view>

#include "launcher/cli/flags.h"

namespace ddl::cli {

std::string HelpText(Command command);
std::string VersionText();
// For who wrote `ddlaunch` and nothing else: what is missing, and how it is said.
std::string UsageText();

// What a group of flags is about; a sentence's worth, without its full stop.
std::string_view TitleOf(FlagGroup group);
// "Starts workers of ...": what the command does, in lines.
std::string_view Purpose(Command command);
// What the flags' own lines have no room for, in paragraphs with an empty line between.
std::string_view Remarks(Command command);

struct Example {
  std::string_view line;
  std::string_view remark;
};
std::span<const Example> Examples(Command command);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_HELP_H_

// ddlaunch's own words to the user, on stderr, each line marked "[ddlaunch]".
//
// Quiet by default: nothing is said about what goes as expected. Thread safe;
// may block on a slow stderr only until SetSink was called.
#ifndef DDLAUNCH_LAUNCHER_LOG_H_
#define DDLAUNCH_LAUNCHER_LOG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ddl::log {

enum class Level : std::uint8_t { kDebug, kInfo, kWarn, kError };

// What is below `level` is not shown.
void Init(Level level);
// Where finished lines go instead of stderr: the console's own writer, so that
// they never tear a worker's line nor wait for a slow terminal.
void SetSink(std::function<void(std::string_view)> sink);

void Debug(std::string_view text);
void Info(std::string_view text);
void Warn(std::string_view text);
void Error(std::string_view text);
// Several lines as they are, without a mark.
void Raw(std::string_view text);

}  // namespace ddl::log

#endif  // DDLAUNCH_LAUNCHER_LOG_H_

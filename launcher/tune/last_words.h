// What a trial that failed says of the reason. Pure.
#ifndef DDLAUNCH_LAUNCHER_TUNE_LAST_WORDS_H_
#define DDLAUNCH_LAUNCHER_TUNE_LAST_WORDS_H_

#include <string_view>

namespace ddl::tune {

// Whether memory ran out, of the device or of the host, in any library's words or a
// program's own. More is taken for it than in a launch, for the micro-batch is what a
// trial varies, and one that fails for another reason seldom speaks of memory.
[[nodiscard]] bool SaysOutOfMemory(std::string_view output);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_LAST_WORDS_H_

// An amount of memory, for people to read. Pure.
#ifndef DDLAUNCH_AGENT_BASE_SIZE_TEXT_H_
#define DDLAUNCH_AGENT_BASE_SIZE_TEXT_H_

#include <cstdint>
#include <string>

namespace ddl {

// "512 B", "64.0 MiB".
[[nodiscard]] std::string SizeText(std::int64_t bytes);

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_SIZE_TEXT_H_

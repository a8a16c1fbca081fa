// Random identifiers. Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_IDS_H_
#define DDLAUNCH_AGENT_BASE_IDS_H_

#include <string>

namespace ddl {

// 32 lower-case hexadecimal digits from the kernel's random source: the id of
// one agent process, or of a job that was given none.
std::string NewRandomId();

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_IDS_H_

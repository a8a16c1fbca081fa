// The secret that admits agents to a coordinator. Thread safe.
#ifndef DDLAUNCH_AGENT_SERVICE_TOKEN_H_
#define DDLAUNCH_AGENT_SERVICE_TOKEN_H_

#include <cstddef>
#include <string>

namespace ddl {

// Whether `given` is the `wanted` token. Takes as long for one that is almost
// right as for one that is all wrong: nobody finds it letter by letter. (How
// long the wanted one is, is no secret.)
inline bool TokenMatches(const std::string& wanted, const std::string& given) {
  unsigned difference = wanted.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const char other = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned char>(wanted[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_TOKEN_H_

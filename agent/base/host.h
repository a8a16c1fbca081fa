// This host's name, and addresses with ports as text. Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_HOST_H_
#define DDLAUNCH_AGENT_BASE_HOST_H_

#include <cstdint>
#include <string>

namespace ddl {

// gethostname(2): for people to read, never resolved.
std::string HostName();

// "host:port", with brackets around an IPv6 address.
std::string JoinHostPort(const std::string& host, std::uint16_t port);

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_HOST_H_

// store_host: PyTorch's TCPStore as the agent serves it, alone, on a free port of
// the loopback interface. Prints the port and serves until its stdin ends.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "agent/base/unique_fd.h"
#include "launcher/tcpstore/server.h"

int main() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ddl::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (::bind(listener.get(), address, length) != 0 || ::listen(listener.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener.get(), address, &length) != 0) {
    std::perror("store_host");
    return 1;
  }
  auto server = ddl::tcpstore::StoreServer::Start(
      std::move(listener), {.limits = {}, .say = [](bool, const std::string& text) {
                              std::fprintf(stderr, "store_host: %s\n", text.c_str());
                            }});
  if (!server.ok()) {
    std::fprintf(stderr, "store_host: %s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("%d\n", ntohs(own.sin_port));
  std::fflush(stdout);
  std::array<char, 64> ignored{};
  while (::read(STDIN_FILENO, ignored.data(), ignored.size()) > 0) {
  }
  return 0;
}

// A worker gateway for tests: the real wire, a world in memory, no launcher.
#ifndef DDLAUNCH_TESTS_UNIT_SDK_GATEWAY_SERVER_H_
#define DDLAUNCH_TESTS_UNIT_SDK_GATEWAY_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

namespace ddl::testing {

struct GatewayOptions {
  int world_size = 1;
  std::int64_t round = 1;
  int restart_count = 0;
  // Batch numbers in place of the program's, 0: the program's.
  std::int64_t global_batch_size = 0;
  std::int64_t micro_batch_size = 0;
  // Hands out plans with a hash that nobody can reproduce.
  bool wrong_hash = false;
};

// Serves one round on a Unix socket from construction to destruction. Every
// local rank is that rank of the world.
class GatewayServer {
 public:
  explicit GatewayServer(const GatewayOptions& options);
  ~GatewayServer();
  GatewayServer(const GatewayServer&) = delete;
  GatewayServer& operator=(const GatewayServer&) = delete;

  // "unix:/path"
  [[nodiscard]] const std::string& address() const { return address_; }
  // The last step that any rank reported.
  [[nodiscard]] std::int64_t reported_step() const;
  // Reports of out of memory by workers that said they would exit.
  [[nodiscard]] int exiting_reports() const;
  // Ends the service now; calls that wait fail.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string directory_;
  std::string address_;
};

}  // namespace ddl::testing

#endif  // DDLAUNCH_TESTS_UNIT_SDK_GATEWAY_SERVER_H_

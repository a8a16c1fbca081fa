// Processes that a test starts or stops: an owner of a worker group, and one that
// is frozen for a while.
#ifndef DDLAUNCH_TESTS_SUPPORT_PROCESSES_H_
#define DDLAUNCH_TESTS_SUPPORT_PROCESSES_H_

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

namespace ddl::test {

// Runs group_host with a null stdin and its output dropped.
inline pid_t StartHost(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  std::vector<std::string> all = {DDL_GROUP_HOST};
  all.insert(all.end(), arguments.begin(), arguments.end());
  for (std::string& argument : all) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  return pid;
}

// Stopped from its construction to Continue or the end.
class StoppedProcess {
 public:
  explicit StoppedProcess(pid_t pid) : pid_(pid) {
    ::kill(pid_, SIGSTOP);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOWAIT);
  }
  ~StoppedProcess() { Continue(); }
  StoppedProcess(const StoppedProcess&) = delete;
  StoppedProcess& operator=(const StoppedProcess&) = delete;
  void Continue() const { ::kill(pid_, SIGCONT); }

 private:
  pid_t pid_;
};

}  // namespace ddl::test

#endif  // DDLAUNCH_TESTS_SUPPORT_PROCESSES_H_

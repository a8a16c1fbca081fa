// Prints the manual page; the build calls it.
#include <cstdio>

#include "launcher/cli/manual.h"

int main() {
  const bool printed = std::fputs(ddl::cli::ManualPage().c_str(), stdout) >= 0;
  return printed && std::fflush(stdout) == 0 ? 0 : 1;
}

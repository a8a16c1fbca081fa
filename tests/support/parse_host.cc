// Reads command lines as ddlaunch does and says what it understood: for the tests
// that compare it with torchrun's own parser. It starts nothing.
//
// stdin, one JSON object a line: {"args": [...], "env": {...}}; stdout, one a line:
//   {"values": {"nnodes": "2"}, "program": "x.py", "program_args": [...], "error": ""}
// `values` are the texts given for each flag, by name, the environment's too;
// `error` is why ddlaunch would refuse the line, empty if it would not.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/parse.h"

namespace {

using nlohmann::json;

json Understand(const json& line) {
  ddl::cli::Surroundings around = ddl::cli::SurroundingsOfThisProcess(nullptr);
  around.environment = line.at("env").get<ddl::cli::Environment>();
  const auto args = line.at("args").get<std::vector<std::string>>();
  json understood = {{"values", json::object()}, {"program", nullptr}};
  const auto scanned =
      ddl::cli::ScanArguments(args, around.environment, ddl::cli::Command::kLaunch);
  if (scanned.ok()) {
    for (const auto& [id, value] : scanned->values) {
      understood["values"][std::string(ddl::cli::Flag(id).name)] = value.text;
    }
    if (scanned->program.has_value()) {
      understood["program"] = *scanned->program;
    }
    understood["program_args"] = scanned->program_args;
  }
  const auto parsed = ddl::cli::ParseCommandLine(args, around);
  understood["error"] = parsed.ok() ? "" : std::string(parsed.status().message());
  return understood;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << Understand(json::parse(line)).dump() << '\n';
  }
  return 0;
}

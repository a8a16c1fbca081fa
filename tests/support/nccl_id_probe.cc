// nccl_id_probe FILE: a worker that agrees on an NCCL unique ID with its peers
// and writes "ROUND HEX" to FILE-RANK, appending. Exit 77: no NCCL here.
#include <cstdio>
#include <fstream>
#include <string>

#include "ddl/ddl.h"

namespace {

std::string ToHex(const ddl::NcclUniqueId& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : id) {
    const auto byte = static_cast<unsigned char>(c);
    hex.push_back(kDigits[byte >> 4U]);
    hex.push_back(kDigits[byte & 0xFU]);
  }
  return hex;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kNoNccl = 77;
  const auto context = ddl::Context::Create();
  if (argc != 2 || !context.ok()) {
    return 1;
  }
  const auto id = ddl::AgreeNcclUniqueId(*context);
  if (!id.ok()) {
    std::fprintf(stderr, "%s\n", id.status().ToString().c_str());
    return kNoNccl;
  }
  std::ofstream(std::string(argv[1]) + "-" + std::to_string(context->rank()), std::ios::app)
      << context->round() << " " << ToHex(*id) << "\n";
  // The first round fails when every rank has its id, so that there is a second.
  const auto all_have = context->Barrier("all have it", std::chrono::minutes(1));
  return all_have.ok() && context->restart_count() == 0 && context->rank() == 1 ? 1 : 0;
}

// Any bytes as a worker's error file: read, or nothing, never worse; what is read
// is text that can be passed on, and what is passed up is JSON again.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/base/check.h"
#include "agent/base/limits.h"
#include "launcher/failures/bounded_json.h"
#include "launcher/failures/error_file.h"
#include "launcher/failures/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(data, data + size);
  const ddl::ErrorFile file = ddl::ParseErrorFile(content);
  DDL_CHECK(file.text.size() <= ddl::limits::kMaxErrorTextBytes);
  DDL_CHECK(ddl::CleanText(file.text, file.text.size()) == file.text);

  const nlohmann::json value = ddl::ParseBoundedJson(content);
  if (!value.is_discarded()) {
    const nlohmann::json copy = value;
    const std::string written =
        copy.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
    DDL_CHECK(!ddl::ParseBoundedJson(written).is_discarded());
  }
  return 0;
}

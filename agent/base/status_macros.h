// DDL_RETURN_IF_ERROR and DDL_ASSIGN_OR_RETURN: hand an error to the caller.
#ifndef DDLAUNCH_AGENT_BASE_STATUS_MACROS_H_
#define DDLAUNCH_AGENT_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// NOLINTBEGIN(cppcoreguidelines-macro-usage): a macro is the only way to return
// from the caller.
#define DDL_RETURN_IF_ERROR(expression)                               \
  do {                                                                \
    if (absl::Status ddl_status_ = (expression); !ddl_status_.ok()) { \
      return ddl_status_;                                             \
    }                                                                 \
  } while (false)

#define DDL_STATUS_CONCAT_INNER_(a, b) a##b
#define DDL_STATUS_CONCAT_(a, b) DDL_STATUS_CONCAT_INNER_(a, b)

// DDL_ASSIGN_OR_RETURN(const int x, ParseInt(text));
#define DDL_ASSIGN_OR_RETURN(declaration, expression) \
  DDL_ASSIGN_OR_RETURN_IMPL_(DDL_STATUS_CONCAT_(ddl_statusor_, __LINE__), declaration, expression)

#define DDL_ASSIGN_OR_RETURN_IMPL_(temporary, declaration, expression) \
  auto temporary = (expression);                                       \
  if (!temporary.ok()) {                                               \
    return std::move(temporary).status();                              \
  }                                                                    \
  declaration = *std::move(temporary)
// NOLINTEND(cppcoreguidelines-macro-usage)

#endif  // DDLAUNCH_AGENT_BASE_STATUS_MACROS_H_

// ddlaunch's own words, through spdlog.
#include "launcher/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <utility>

namespace ddl::log {
namespace {

// Formatted lines to a function, or to stderr while there is none.
class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void Set(std::function<void(std::string_view)> function) {
    const std::lock_guard lock(mutex_);
    function_ = std::move(function);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view text(line.data(), line.size());
    if (function_) {
      function_(text);
    } else {
      std::fwrite(text.data(), 1, text.size(), stderr);
    }
  }
  void flush_() override {}

 private:
  std::function<void(std::string_view)> function_;
};

struct Loggers {
  std::shared_ptr<FunctionSink> sink = std::make_shared<FunctionSink>();
  std::shared_ptr<FunctionSink> raw_sink = std::make_shared<FunctionSink>();
  spdlog::logger marked{"ddlaunch", sink};
  spdlog::logger raw{"raw", raw_sink};
};

Loggers& Get() {
  static Loggers& loggers = *[] {
    auto* made = new Loggers;  // NOLINT(cppcoreguidelines-owning-memory): lives for ever
    made->marked.set_pattern("[ddlaunch] %^%v%$");
    made->raw.set_pattern("%v");
    return made;
  }();
  return loggers;
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      break;
  }
  return spdlog::level::err;
}

// A string_view is never a format string here.
void Write(spdlog::level::level_enum level, std::string_view text) {
  Get().marked.log(level, spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace

void Init(Level level) {
  Get().marked.set_level(ToSpdlog(level));
}

void SetSink(std::function<void(std::string_view)> sink) {
  Get().sink->Set(sink);
  Get().raw_sink->Set(std::move(sink));
}

void Debug(std::string_view text) {
  Write(spdlog::level::debug, text);
}
void Info(std::string_view text) {
  Write(spdlog::level::info, text);
}
void Warn(std::string_view text) {
  Write(spdlog::level::warn, text);
}
void Error(std::string_view text) {
  Write(spdlog::level::err, text);
}
void Raw(std::string_view text) {
  Get().raw.log(spdlog::level::err, spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace ddl::log

// Log lines for the person who runs the program, on standard error: "12:03:04.567 W message". The
// library behind it is named in log.cc only.
#pragma once

#include <string>

#include "base/str_cat.h"

namespace pewter {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void log_message(LogLevel level, const std::string& message);
void set_log_level(LogLevel least);

}  // namespace pewter

#define LOG_DEBUG(...) \
  ::pewter::log_message(::pewter::LogLevel::kDebug, ::pewter::str_cat(__VA_ARGS__))
#define LOG_INFO(...) \
  ::pewter::log_message(::pewter::LogLevel::kInfo, ::pewter::str_cat(__VA_ARGS__))
#define LOG_WARNING(...) \
  ::pewter::log_message(::pewter::LogLevel::kWarning, ::pewter::str_cat(__VA_ARGS__))
#define LOG_ERROR(...) \
  ::pewter::log_message(::pewter::LogLevel::kError, ::pewter::str_cat(__VA_ARGS__))

// {"error": {"message", "type", "param", "code"}}: the body of every answer that is an error.
#pragma once

#include <string>
#include <string_view>

namespace pewter::server {

// Null in the body where empty: param and code. Without a code the status stands in for it.
// Texts that are not UTF-8 are mended.
std::string error_body(int status, std::string_view type, std::string_view message,
                       std::string_view param = {}, std::string_view code = {});

}  // namespace pewter::server

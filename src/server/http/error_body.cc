#include "server/http/error_body.h"

#include "base/json.h"
#include "base/str_cat.h"
#include "base/utf8.h"

namespace pewter::server {

std::string error_body(int status, std::string_view type, std::string_view message,
                       std::string_view param, std::string_view code) {
  std::string body = "{\"error\":{\"message\":";
  append_json_string(body, replace_invalid_utf8(message));
  body += ",\"type\":";
  append_json_string(body, type);
  body += ",\"param\":";
  if (param.empty())
    body += "null";
  else
    append_json_string(body, replace_invalid_utf8(param));
  body += ",\"code\":";
  if (code.empty())
    append_piece(body, status);
  else
    append_json_string(body, code);
  body += "}}";
  return body;
}

}  // namespace pewter::server

// The description of the whole API in OpenAPI 3.1, made of the table of endpoints and of the
// schemas beside it. tests hold both to what the parsers read and to what the endpoints answer.
#pragma once

#include <string_view>

#include "base/json.h"

namespace pewter::server {

// The document. `version`: the server's.
Json openapi_document(std::string_view version);
// The schemas of its components, by name, as they are written down.
Json openapi_schemas();

}  // namespace pewter::server

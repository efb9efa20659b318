// The table of endpoints: what the router serves and what /openapi.json describes, so that neither
// can have what the other lacks.
#pragma once

#include <span>

#include "server/endpoints.h"

namespace pewter::server {

struct EndpointEntry {
  const char* method;
  const char* path;     // ends in "{model}" where a name follows
  const char* summary;  // one line
  const char* request;  // schema of its body in openapi_schemas.h; "": it has none
  const char* response;
  bool streams;       // it may answer with text/event-stream
  Endpoint endpoint;  // null: answered by Api itself, without a model
};

std::span<const EndpointEntry> endpoint_table();

}  // namespace pewter::server

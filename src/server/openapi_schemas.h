// What requests and answers look like, as JSON schemas. A request's "include" names groups of
// fields that several have; fields without a place here are ignored or refused by name.
#pragma once

#include <string_view>

namespace pewter::server {

extern const std::string_view kFieldGroups, kRequestSchemas, kResponseSchemas;

}  // namespace pewter::server

#include "server/openapi_schemas.h"

namespace pewter::server {

const std::string_view kResponseSchemas = R"json({
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
    "required": ["message", "type", "param", "code"], "properties": {
      "message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]},
      "code": {"type": ["string", "integer"]}}}}},
  "MessagesError": {"type": "object", "required": ["type", "error"], "properties": {"type": {"const": "error"},
    "error": {"type": "object", "required": ["type", "message"], "properties": {
      "type": {"type": "string"}, "message": {"type": "string"}}}}},
  "Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"], "properties": {
    "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"},
    "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"]},
    "completion_tokens_details": {"type": "object", "required": ["reasoning_tokens"]}}},
  "ToolCall": {"type": "object", "required": ["id", "type", "function"], "properties": {
    "id": {"type": "string"}, "type": {"const": "function"},
    "function": {"type": "object", "required": ["name", "arguments"], "properties": {
      "name": {"type": "string"}, "arguments": {"type": "string"}}}}},
  "ChatCompletion": {"type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage", "timings"], "properties": {
      "id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"}, "timings": {"type": "object"},
      "prompt_token_ids": {"type": "array", "items": {"type": "integer"}},
      "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["index", "message", "logprobs", "finish_reason", "stop_reason"], "properties": {
          "index": {"type": "integer"}, "logprobs": {"type": ["object", "null"]},
          "finish_reason": {"enum": ["stop", "length", "tool_calls", "repetition"]},
          "stop_reason": {"type": ["string", "integer", "null"]},
          "reasoning_truncated": {"const": true},
          "token_ids": {"type": "array", "items": {"type": "integer"}},
          "message": {"type": "object", "required": ["role", "content"], "additionalProperties": false,
            "properties": {"role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
              "reasoning": {"type": "string"}, "reasoning_content": {"type": "string"},
              "tool_calls": {"type": "array", "minItems": 1,
                "items": {"$ref": "#/components/schemas/ToolCall"}}}}}}}}},
  "Completion": {"type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage", "timings"], "properties": {
      "id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"}, "timings": {"type": "object"},
      "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["index", "text", "logprobs", "finish_reason", "stop_reason"], "properties": {
          "index": {"type": "integer"}, "text": {"type": "string"}, "logprobs": {"type": ["object", "null"]},
          "finish_reason": {"enum": ["stop", "length", "repetition"]},
          "stop_reason": {"type": ["string", "integer", "null"]}}}}}},
  "Item": {"anyOf": [
    {"type": "object", "required": ["id", "type", "status", "summary", "content"], "properties": {
      "type": {"const": "reasoning"}, "content": {"type": "array", "items": {"type": "object",
        "required": ["type", "text"], "properties": {"type": {"const": "reasoning_text"}}}}}},
    {"type": "object", "required": ["id", "type", "status", "role", "content"], "properties": {
      "type": {"const": "message"}, "role": {"const": "assistant"},
      "content": {"type": "array", "items": {"type": "object", "required": ["type", "text", "annotations"],
        "properties": {"type": {"const": "output_text"}, "text": {"type": "string"}}}}}},
    {"type": "object", "required": ["id", "type", "status", "call_id", "name", "arguments"], "properties": {
      "type": {"const": "function_call"}, "name": {"type": "string"}, "arguments": {"type": "string"}}}]},
  "Response": {"type": "object", "required": ["id", "object", "created_at", "model", "status", "error",
      "incomplete_details", "output", "usage", "instructions", "metadata", "parallel_tool_calls", "temperature",
      "tool_choice", "tools", "top_p"], "properties": {
    "id": {"type": "string"}, "object": {"const": "response"}, "created_at": {"type": "integer"},
    "model": {"type": "string"}, "status": {"enum": ["completed", "incomplete"]}, "error": {"type": "null"},
    "incomplete_details": {"type": ["object", "null"]},
    "output": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
    "usage": {"type": "object", "required": ["input_tokens", "input_tokens_details", "output_tokens",
      "output_tokens_details", "total_tokens"]}}},
  "Message": {"type": "object", "required": ["id", "type", "role", "model", "content", "stop_reason",
      "stop_sequence", "usage"], "properties": {
    "id": {"type": "string"}, "type": {"const": "message"}, "role": {"const": "assistant"},
    "model": {"type": "string"}, "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
    "stop_sequence": {"type": ["string", "null"]},
    "content": {"type": "array", "items": {"anyOf": [
      {"$ref": "#/components/schemas/TextBlock"},
      {"type": "object", "required": ["type", "thinking", "signature"], "properties": {"type": {"const": "thinking"}}},
      {"type": "object", "required": ["type", "id", "name", "input"], "properties": {
        "type": {"const": "tool_use"}, "input": {"type": "object"}}}]}},
    "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]}}},
  "MessageTokens": {"type": "object", "required": ["input_tokens"],
    "properties": {"input_tokens": {"type": "integer", "minimum": 1}}},
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len"], "properties": {
    "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
    "max_model_len": {"type": "integer", "minimum": 1}}},
  "ModelList": {"type": "object", "required": ["object", "data"], "properties": {"object": {"const": "list"},
    "data": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Model"}}}},
  "Tokens": {"type": "object", "required": ["count", "max_model_len", "tokens"], "properties": {
    "count": {"type": "integer"}, "max_model_len": {"type": "integer"},
    "tokens": {"type": "array", "items": {"type": "integer"}},
    "token_strs": {"type": "array", "items": {"type": "string"}}}},
  "Text": {"type": "object", "required": ["prompt", "content"], "properties": {
    "prompt": {"type": "string"}, "content": {"type": "string"}}},
  "Prompt": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
  "Health": {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
  "Version": {"type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}},
  "OpenApi": {"type": "object", "required": ["openapi", "info", "paths"]}
})json";

}  // namespace pewter::server

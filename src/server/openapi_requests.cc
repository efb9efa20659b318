#include "server/openapi_schemas.h"

namespace pewter::server {

const std::string_view kFieldGroups = R"json({
  "Generation": {
    "model": {"type": "string"},
    "stream": {"type": "boolean", "default": false},
    "stream_options": {"type": "object", "description": "only with stream: true",
      "properties": {"include_usage": {"type": "boolean"}, "continuous_usage_stats": {"type": "boolean"}}},
    "n": {"type": "integer", "minimum": 1, "maximum": 128, "default": 1},
    "temperature": {"type": "number", "minimum": 0, "maximum": 100},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": -1, "maximum": 2147483647},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "repetition_penalty": {"type": "number", "minimum": 0.001, "maximum": 1000},
    "repeat_penalty": {"type": "number", "minimum": 0.001, "maximum": 1000},
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "seed": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
    "logit_bias": {"type": "object", "description": "token id to bias",
      "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
    "max_tokens": {"type": "integer", "minimum": 1},
    "max_completion_tokens": {"type": "integer", "minimum": 1},
    "n_predict": {"type": "integer", "minimum": -1},
    "min_tokens": {"type": "integer", "minimum": 0},
    "ignore_eos": {"type": "boolean"},
    "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 64}]},
    "stop_token_ids": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "include_stop_str_in_output": {"type": "boolean"},
    "skip_special_tokens": {"type": "boolean", "default": true},
    "return_token_ids": {"type": "boolean"},
    "bad_words": {"description": "texts that are not said", "anyOf": [{"type": "string", "minLength": 1},
      {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 1024}]},
    "allowed_token_ids": {"type": "array", "description": "the only ids that may be chosen", "minItems": 1,
      "items": {"type": "integer", "minimum": 0}},
    "truncate_prompt_tokens": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": -1}]},
    "response_format": {"$ref": "#/components/schemas/Format"},
    "structured_outputs": {"type": "object", "description": "one of these; docs/structured-output.md",
      "properties": {"json": {"$ref": "#/components/schemas/AnswerSchema"}, "regex": {"type": "string"},
        "choice": {"$ref": "#/components/schemas/Choices"}, "grammar": {"type": "string"},
        "json_object": {"type": "boolean"}, "structural_tag": {"description": "an object with triggers and structures, or its text"}}},
    "guided_json": {"$ref": "#/components/schemas/AnswerSchema"},
    "guided_regex": {"type": "string"},
    "guided_choice": {"$ref": "#/components/schemas/Choices"},
    "guided_grammar": {"type": "string"},
    "grammar": {"type": "string"},
    "json_schema": {"$ref": "#/components/schemas/AnswerSchema"}
  },
  "Reports": {
    "prompt_logprobs": {"type": "integer", "minimum": 0, "maximum": 20, "description": "only without stream"},
    "return_prompt_text": {"type": "boolean"},
    "repetition_detection": {"type": "object", "properties": {
      "max_pattern_size": {"type": "integer", "minimum": 0, "maximum": 1024},
      "min_pattern_size": {"type": "integer", "minimum": 0, "maximum": 1024},
      "min_count": {"type": "integer", "minimum": 0, "maximum": 1024}}}
  },
  "Thinking": {
    "chat_template_kwargs": {"type": "object", "description": "variables of the chat template",
      "properties": {"enable_thinking": {"type": "boolean"}}},
    "enable_thinking": {"type": "boolean"},
    "thinking": {"type": "object", "properties": {
      "type": {"enum": ["enabled", "disabled", "adaptive", "auto"]},
      "budget_tokens": {"type": "integer", "minimum": -1}}},
    "reasoning": {"type": "object", "properties": {"effort": {"type": "string"},
      "enabled": {"type": "boolean"}, "max_tokens": {"type": "integer", "minimum": -1}}},
    "reasoning_effort": {"type": "string", "description": "none: no thinking"},
    "thinking_token_budget": {"type": "integer", "minimum": -1},
    "thinking_budget": {"type": "integer", "minimum": -1},
    "thinking_budget_tokens": {"type": "integer", "minimum": -1},
    "reasoning_budget": {"type": "integer", "minimum": -1}
  },
  "Chat": {
    "tools": {"type": "array", "items": {"type": "object", "required": ["function"], "properties": {
      "type": {"const": "function"},
      "function": {"$ref": "#/components/schemas/Function"}}}},
    "chat_template": {"type": "string", "description": "only where --trust-request-chat-template allows it"},
    "add_generation_prompt": {"type": "boolean"},
    "continue_final_message": {"type": "boolean"}
  }
})json";

const std::string_view kRequestSchemas = R"json({
  "AnswerSchema": {"description": "a JSON Schema, or its text",
    "anyOf": [{"type": "object"}, {"type": "boolean"}, {"type": "string"}]},
  "Choices": {"type": "array", "minItems": 1, "maxItems": 10000, "items": {"type": "string"}},
  "Format": {"type": "object", "required": ["type"], "properties": {
    "type": {"enum": ["text", "json_object", "json_schema", "structural_tag"]},
    "triggers": {"type": "array", "items": {"type": "string", "minLength": 1}}, "structures": {"type": "array", "items": {"type": "object"}},
    "schema": {"$ref": "#/components/schemas/AnswerSchema"},
    "json_schema": {"type": "object", "required": ["schema"], "properties": {"name": {"type": "string"},
      "strict": {"type": "boolean"}, "schema": {"$ref": "#/components/schemas/AnswerSchema"}}}}},
  "Function": {"type": "object", "required": ["name"], "properties": {
    "name": {"type": "string", "minLength": 1}, "description": {"type": "string"},
    "parameters": {"type": "object"}, "strict": {"type": "boolean"}}},
  "Parts": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object",
    "required": ["type", "text"], "properties": {
      "type": {"enum": ["text", "input_text", "output_text"]}, "text": {"type": "string"}}}}]},
  "ChatMessage": {"type": "object", "required": ["role", "content"], "properties": {
    "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
    "content": {"anyOf": [{"$ref": "#/components/schemas/Parts"}, {"type": "null"}]},
    "name": {"type": "string"}, "tool_call_id": {"type": "string"},
    "reasoning": {"type": "string"}, "reasoning_content": {"type": "string"},
    "tool_calls": {"type": "array", "items": {"type": "object", "required": ["function"], "properties": {
      "id": {"type": "string"}, "type": {"const": "function"},
      "function": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1},
        "arguments": {"anyOf": [{"type": "string"}, {"type": "object"}]}}}}}}}},
  "ChatRequest": {"type": "object", "required": ["messages"], "include": ["Generation", "Reports", "Thinking", "Chat"],
    "properties": {
      "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/ChatMessage"}},
      "logprobs": {"type": "boolean"},
      "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20, "description": "only with logprobs: true"},
      "tool_choice": {"description": "only with tools", "anyOf": [{"enum": ["auto", "none", "required"]}, {"type": "object"}]},
      "parallel_tool_calls": {"type": "boolean", "default": true},
      "echo": {"type": "boolean", "description": "the assistant's message that is gone on with stands in the answer"},
      "include_reasoning": {"type": "boolean", "default": true}}},
  "CompletionRequest": {"type": "object", "required": ["prompt"], "include": ["Generation", "Reports"], "properties": {
    "prompt": {"anyOf": [{"type": "string", "minLength": 1},
      {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
      {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
      {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1,
        "items": {"type": "integer", "minimum": 0}}}]},
    "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    "echo": {"type": "boolean"},
    "best_of": {"type": "integer", "minimum": 1, "description": "as much as n"}}},
  "ResponsesRequest": {"type": "object", "required": ["input"], "include": ["Generation", "Thinking"],
    "properties": {
      "input": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"anyOf": [
        {"type": "object", "required": ["role", "content"], "properties": {"type": {"const": "message"},
          "role": {"enum": ["system", "developer", "user", "assistant"]},
          "content": {"$ref": "#/components/schemas/Parts"}}},
        {"type": "object", "required": ["type", "call_id", "name", "arguments"], "properties": {
          "type": {"const": "function_call"}, "call_id": {"type": "string", "minLength": 1},
          "name": {"type": "string", "minLength": 1}, "arguments": {"type": "string"}}},
        {"type": "object", "required": ["type", "call_id", "output"], "properties": {
          "type": {"const": "function_call_output"}, "call_id": {"type": "string", "minLength": 1},
          "output": {"$ref": "#/components/schemas/Parts"}}}]}}]},
      "instructions": {"type": "string"},
      "max_output_tokens": {"type": "integer", "minimum": 1},
      "tools": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/Function"},
        {"type": "object", "required": ["type"], "properties": {"type": {"const": "function"}}}]}},
      "tool_choice": {"anyOf": [{"enum": ["auto", "none", "required"]}, {"type": "object"}]},
      "parallel_tool_calls": {"type": "boolean", "default": true},
      "text": {"type": "object", "properties": {"format": {"$ref": "#/components/schemas/Format"}}},
      "top_logprobs": {"const": 0},
      "previous_response_id": {"type": "null"}}},
  "MessagesRequest": {"type": "object", "required": ["messages"], "include": ["Generation", "Thinking"],
    "properties": {
      "messages": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["role", "content"],
        "properties": {"role": {"enum": ["user", "assistant", "system"]},
          "content": {"$ref": "#/components/schemas/Blocks"}}}},
      "system": {"$ref": "#/components/schemas/TextBlocks"},
      "thread": {"type": "null"},
      "stop_sequences": {"type": "array", "items": {"type": "string"}, "maxItems": 64},
      "tools": {"type": "array", "items": {"type": "object", "required": ["name", "input_schema"], "properties": {
        "type": {"const": "custom"}, "name": {"type": "string", "minLength": 1},
        "description": {"type": "string"}, "input_schema": {"type": "object"}}}},
      "tool_choice": {"type": "object", "description": "only with tools", "required": ["type"], "properties": {
        "type": {"enum": ["auto", "none", "any", "tool"]}, "name": {"type": "string"}, "disable_parallel_tool_use": {"type": "boolean"}}},
      "output_config": {"type": "object", "properties": {"effort": {"type": "string"},
        "format": {"$ref": "#/components/schemas/Format"}}}}},
  "TextBlock": {"type": "object", "required": ["type", "text"], "properties": {
    "type": {"const": "text"}, "text": {"type": "string"}}},
  "TextBlocks": {"anyOf": [{"type": "string"},
    {"type": "array", "items": {"$ref": "#/components/schemas/TextBlock"}}]},
  "Blocks": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [
    {"$ref": "#/components/schemas/TextBlock"},
    {"type": "object", "required": ["type", "thinking"], "properties": {
      "type": {"const": "thinking"}, "thinking": {"type": "string"}, "signature": {"type": "string"}}},
    {"type": "object", "required": ["type", "id", "name", "input"], "properties": {
      "type": {"const": "tool_use"}, "id": {"type": "string"}, "name": {"type": "string", "minLength": 1},
      "input": {"type": "object"}}},
    {"type": "object", "required": ["type", "tool_use_id"], "properties": {
      "type": {"const": "tool_result"}, "tool_use_id": {"type": "string"},
      "content": {"$ref": "#/components/schemas/TextBlocks"}}}]}}]},
  "TokenizeRequest": {"type": "object", "include": ["Thinking", "Chat"],
    "description": "one of prompt, content and messages", "properties": {
      "model": {"type": "string"}, "prompt": {"type": "string"}, "content": {"type": "string"},
      "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/ChatMessage"}},
      "return_token_strs": {"type": "boolean"}, "with_pieces": {"type": "boolean"}}},
  "TemplateRequest": {"type": "object", "required": ["messages"], "include": ["Thinking", "Chat"], "properties": {
    "model": {"type": "string"},
    "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/ChatMessage"}}}},
  "DetokenizeRequest": {"type": "object", "required": ["tokens"], "include": [], "properties": {
    "model": {"type": "string"}, "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}}}
})json";

}  // namespace pewter::server

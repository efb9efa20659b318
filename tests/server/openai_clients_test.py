"""The server as users of the openai package meet it."""

import json
import pathlib
import re
import subprocess
import sys
import typing
import unittest

import openai
import pydantic

from program import Server

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "build/pewter"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TOOLS = json.loads((pathlib.Path(__file__).resolve().parents[2] / "tools/demo_tools.json").read_text())
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--api-key", "secret")
        cls.client = openai.OpenAI(base_url=cls.server.url("/v1"), api_key="secret", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__()

    def chat(self, **more):
        extra = {**NO_THINKING, **more.pop("extra_body", {})}
        return self.client.chat.completions.create(model="m", messages=more.pop("messages", QUESTION),
                                                   temperature=0, extra_body=extra, **more)

    def test_chat(self):
        answer = self.chat()
        self.assertEqual(answer.choices[0].message.content, "The capital of France is Paris.")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_reasoning(self):
        message = self.chat(extra_body={"chat_template_kwargs": {"enable_thinking": True}})
        self.assertIn("Paris", message.choices[0].message.reasoning_content)
        self.assertGreater(message.usage.completion_tokens_details.reasoning_tokens, 3)

    def test_stream(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, "The capital of France is Paris.")
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].usage.completion_tokens, len(chunks) - 2)

    def test_stream_helper(self):
        with self.client.chat.completions.stream(model="m", messages=QUESTION, temperature=0,
                                                 extra_body=NO_THINKING) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, "The capital of France is Paris.")

    def test_stream_closed_early(self):
        stream = self.chat(stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.wait_for("client gone")

    def test_logprobs_and_choices(self):
        answer = self.chat(n=2, logprobs=True, top_logprobs=2)
        self.assertEqual(len(answer.choices), 2)
        tokens = answer.choices[1].logprobs.content
        self.assertEqual("".join(t.token for t in tokens), answer.choices[1].message.content)
        self.assertEqual(bytes(b for t in tokens for b in t.bytes).decode(),
                         answer.choices[1].message.content)
        self.assertEqual([len(t.top_logprobs) for t in tokens], [2] * len(tokens))

    def test_completions(self):
        answer = self.client.completions.create(model="m", prompt=["1, 2, 3, 4,", "5, 6,"], temperature=0,
                                                max_tokens=4, logprobs=1)
        self.assertEqual(answer.choices[0].text, " 5, ")
        self.assertEqual(len(answer.choices[1].logprobs.tokens), 4)
        text = "".join(c.choices[0].text for c in self.client.completions.create(
            model="m", prompt="1, 2, 3, 4,", temperature=0, max_tokens=4, stream=True))
        self.assertEqual(text, " 5, ")

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["m"])
        self.assertEqual(self.client.models.retrieve("m").id, "m")

    def test_tool_loop(self):
        """A question, the call it needs, its result, the answer; whole and streamed."""
        messages = [{"role": "user", "content": "What is the weather in Paris?"}]
        first = self.chat(messages=messages, tools=TOOLS).choices[0]
        self.assertEqual(first.finish_reason, "tool_calls")
        call = first.message.tool_calls[0]
        self.assertEqual(call.function.name, "get_weather")
        self.assertEqual(json.loads(call.function.arguments), {"city": "Paris"})
        messages += [first.message.model_dump(exclude_none=True), {
            "role": "tool", "tool_call_id": call.id,
            "content": json.dumps({"city": "Paris", "degrees": 21, "sky": "sunny"})}]
        last = self.chat(messages=messages, tools=TOOLS).choices[0]
        self.assertEqual(last.finish_reason, "stop")
        self.assertIn("with 21 degrees", last.message.content)
        with self.client.chat.completions.stream(model="m", messages=messages[:1], temperature=0, tools=TOOLS,
                                                 extra_body=NO_THINKING) as stream:
            streamed = stream.get_final_completion().choices[0]
        self.assertEqual(streamed.finish_reason, "tool_calls")
        self.assertEqual(streamed.message.tool_calls[0].function.arguments, call.function.arguments)

    def respond(self, text="What is the capital of France?", **more):
        extra = {**NO_THINKING, **more.pop("extra_body", {})}
        return self.client.responses.create(model="m", input=text, temperature=0, extra_body=extra, **more)

    def test_response(self):
        answer = self.respond()
        self.assertEqual(answer.output_text, "The capital of France is Paris.")
        self.assertEqual((answer.status, answer.error, answer.incomplete_details), ("completed", None, None))
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)
        same = self.respond([{"role": "user", "content": [
            {"type": "input_text", "text": "What is the capital of France?"}]}], store=True, include=[])
        self.assertEqual(same.output_text, answer.output_text)
        thought = self.respond(extra_body={"chat_template_kwargs": {"enable_thinking": True}})
        self.assertEqual([item.type for item in thought.output], ["reasoning", "message"])
        self.assertIn("Paris", thought.output[0].content[0].text)
        self.assertGreater(thought.usage.output_tokens_details.reasoning_tokens, 3)
        cut = self.respond(max_output_tokens=2)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_response_loop(self):
        """The input is the whole conversation: a question, the call, its output."""
        tools = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
        history = [{"role": "user", "content": "What is the weather in Paris?"}]
        first = self.respond(history, tools=tools)
        call = first.output[0]
        self.assertEqual((call.type, call.name, json.loads(call.arguments)),
                         ("function_call", "get_weather", {"city": "Paris"}))
        history += [item.model_dump() for item in first.output]
        history.append({"type": "function_call_output", "call_id": call.call_id,
                        "output": json.dumps({"city": "Paris", "degrees": 21, "sky": "sunny"})})
        self.assertIn("degrees", self.respond(history, tools=tools).output_text)

    def test_response_stream(self):
        """Events build what a whole response has."""
        tools = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
        thinking = {"chat_template_kwargs": {"enable_thinking": True}}
        for more in ({}, {"extra_body": thinking}, {"max_output_tokens": 3},
                     {"text": "What is the weather in Paris?", "tools": tools, "extra_body": thinking}):
            with self.subTest(more):
                whole = self.respond(**more)
                question = {"input": more.get("text", "What is the capital of France?")}
                extra = {**NO_THINKING, **more.get("extra_body", {})}
                rest = {k: v for k, v in more.items() if k not in ("text", "extra_body")}
                with self.client.responses.stream(model="m", temperature=0, extra_body=extra, **question,
                                                  **rest) as stream:
                    events = list(stream)
                self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
                self.assertEqual([e.type for e in events[:2]], ["response.created", "response.in_progress"])
                self.assertEqual(events[-1].type, f"response.{whole.status}")
                strip = lambda r: [{k: v for k, v in item.model_dump().items() if k not in ("id", "call_id")}
                                   for item in r.output]
                final = events[-1].response
                bare = lambda items: json.loads(json.dumps(items).replace('"parsed": null, ', "").replace(
                    ', "parsed": null', "").replace(', "parsed_arguments": null', ""))
                self.assertEqual(bare(strip(final)), bare(strip(whole)))
                self.assertEqual(final.usage, whole.usage)
                text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
                self.assertEqual(text, whole.output_text)
                pieces = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
                self.assertEqual(pieces, "".join(i.arguments for i in whole.output if i.type == "function_call"))
                done = [e.item for e in events if e.type == "response.output_item.done"]
                self.assertEqual(len(done), len(whole.output))

    def test_response_errors(self):
        with self.assertRaises(openai.BadRequestError) as bad:
            self.respond(previous_response_id="resp_1")
        self.assertEqual(bad.exception.param, "previous_response_id")
        with self.assertRaises(openai.BadRequestError) as bad:
            self.respond([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])
        self.assertEqual(bad.exception.param, "input[0].content[0]")

    def test_structured_output(self):
        """A model of pydantic's, as schema there and as object back; and a call that the model would not make."""
        class City(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=12)
            rivers: list[typing.Literal["Seine", "Loire"]] = pydantic.Field(max_length=2)
            capital: bool | None

        answer = self.client.chat.completions.parse(model="m", messages=QUESTION, temperature=0, max_tokens=200,
                                                    response_format=City, extra_body=NO_THINKING)
        self.assertIsInstance(answer.choices[0].message.parsed, City)
        forced = self.chat(tools=TOOLS, tool_choice="required").choices[0]
        self.assertEqual(forced.finish_reason, "tool_calls")
        with self.assertRaises(openai.BadRequestError) as bad:
            self.chat(extra_body={"guided_json": {"type": "array", "uniqueItems": True}})
        self.assertEqual(bad.exception.param, "guided_json")

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as missing:
            self.client.chat.completions.create(model="other", messages=QUESTION)
        self.assertEqual(missing.exception.param, "model")
        with self.assertRaises(openai.BadRequestError) as bad:
            self.chat(messages=[{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}])
        self.assertEqual(bad.exception.param, "messages[0].content[0]")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.server.url("/v1"), api_key="wrong", max_retries=0).models.list()


class Demo(unittest.TestCase):
    def test_printed_lines_work(self):
        """What ./dev demo prints for curl and for Python, run as printed but for the port."""
        dev = pathlib.Path(__file__).resolve().parents[2] / "dev"
        printed = re.search(r"<<'CLIENTS'\n(.*?)\nCLIENTS\n", dev.read_text(), re.DOTALL).group(1)
        with Server(PROGRAM, "--override-generation-config", '{"temperature": 0}', name="demo") as server:
            printed = printed.replace(":8000", f":{server.port}")
            curl = re.search(r"^curl .*?\n\n", printed, re.DOTALL | re.MULTILINE).group(0)
            python = printed[printed.index("from openai"):]
            for command in (["bash", "-c", curl], [sys.executable, "-c", python]):
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                self.assertIn("Paris", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)

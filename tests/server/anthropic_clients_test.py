"""The server as users of the anthropic package meet it."""

import json
import pathlib
import sys
import unittest

import anthropic

from program import Server

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "build/pewter"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS = [{"name": tool["function"]["name"], "description": tool["function"]["description"],
          "input_schema": tool["function"]["parameters"]}
         for tool in json.loads((pathlib.Path(__file__).resolve().parents[2] / "tools/demo_tools.json").read_text())]
GREEDY = {"temperature": 0}
THINKING = {"type": "enabled", "budget_tokens": 1024}


class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--api-key", "secret")
        cls.client = anthropic.Anthropic(base_url=cls.server.url(), api_key="secret", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__()

    def ask(self, messages=QUESTION, **more):
        return self.client.messages.create(**{"model": "m", "max_tokens": 512, "extra_body": GREEDY, **more},
                                           messages=messages)

    def stream(self, messages=QUESTION, **more):
        """Every event, and the message that the client builds of them."""
        with self.client.messages.stream(model="m", max_tokens=512, extra_body=GREEDY, messages=messages,
                                         **more) as stream:
            return list(stream), stream.get_final_message()

    def test_message(self):
        answer = self.ask()
        self.assertEqual([(block.type, block.text) for block in answer.content],
                         [("text", "The capital of France is Paris.")])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("end_turn", None))
        self.assertRegex(answer.id, "^msg_")
        count = self.client.messages.count_tokens(model="m", messages=QUESTION)
        self.assertEqual(answer.usage.input_tokens, count.input_tokens)
        self.assertGreater(answer.usage.output_tokens, 3)

    def test_thinking(self):
        answer = self.ask(thinking=THINKING, max_tokens=2048)
        self.assertEqual([block.type for block in answer.content], ["thinking", "text"])
        self.assertIn("Paris", answer.content[0].thinking)
        self.assertEqual(answer.content[1].text, "The capital of France is Paris.")
        # What was thought goes back to where it came from.
        again = self.ask([*QUESTION, {"role": "assistant", "content": answer.content},
                          {"role": "user", "content": "And of Spain?"}], thinking={"type": "disabled"})
        self.assertEqual([block.type for block in again.content], ["text"])

    def test_stream_is_the_same(self):
        for more in ({}, {"thinking": THINKING}, {"tools": TOOLS, "messages": WEATHER},
                     {"tools": TOOLS, "messages": WEATHER, "thinking": THINKING}, {"stop_sequences": [" of"]}):
            with self.subTest(more):
                whole = self.ask(**more)
                events, streamed = self.stream(**more)
                strip = lambda m: [{k: v for k, v in b.model_dump().items() if k != "id"} for b in m.content]
                self.assertEqual(strip(streamed), strip(whole))
                self.assertEqual(streamed.stop_reason, whole.stop_reason)
                self.assertEqual(streamed.stop_sequence, whole.stop_sequence)
                self.assertEqual(streamed.usage.output_tokens, whole.usage.output_tokens)
                self.assertEqual(streamed.usage.input_tokens, whole.usage.input_tokens)
                kinds = [event.type for event in events]
                self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))
                self.assertEqual(kinds.count("content_block_start"), len(whole.content))
                self.assertEqual(kinds.count("content_block_stop"), len(whole.content))
                self.assertGreater(kinds.count("content_block_delta"), 1)

    def test_tool_loop(self):
        """A question, the use it needs, its result, the answer."""
        first = self.ask(WEATHER, tools=TOOLS)
        self.assertEqual(first.stop_reason, "tool_use")
        use = first.content[-1]
        self.assertEqual((use.type, use.name, use.input), ("tool_use", "get_weather", {"city": "Paris"}))
        self.assertRegex(use.id, "^toolu_[0-9a-f]{24}$")
        result = json.dumps({"city": "Paris", "degrees": 21, "sky": "sunny"})
        for content in (result, [{"type": "text", "text": result}]):
            last = self.ask([*WEATHER, {"role": "assistant", "content": first.content},
                             {"role": "user", "content": [
                                 {"type": "tool_result", "tool_use_id": use.id, "content": content}]}],
                            tools=TOOLS)
            self.assertEqual(last.stop_reason, "end_turn")
            self.assertIn("with 21 degrees", last.content[-1].text)

    def test_stops(self):
        stopped = self.ask(stop_sequences=["zzz", " of"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", " of"))
        self.assertEqual(stopped.content[0].text, "The capital")
        cut = self.ask(max_tokens=2)
        self.assertEqual(cut.stop_reason, "max_tokens")
        cut = self.ask(WEATHER, tools=TOOLS, max_tokens=10)  # within the call: half of it is not told
        self.assertEqual((cut.stop_reason, cut.content), ("max_tokens", []))

    def test_goes_on_with_the_assistant(self):
        answer = self.ask([*QUESTION, {"role": "assistant", "content": "The capital of"}])
        self.assertEqual(answer.content[0].text, " France is Paris.")

    def test_system(self):
        count = lambda system: self.client.messages.count_tokens(
            model="m", messages=QUESTION, system=system).input_tokens
        text = lambda *texts: [{"type": "text", "text": t} for t in texts]
        self.assertEqual(count("Be brief.\n\nBe kind."), count(text("Be brief.", "Be kind.")))
        self.assertEqual(count("Be brief."),
                         count(text("x-anthropic-billing-header: cc_version=1; cch=00a1;", "Be brief.")))

    def test_errors(self):
        with self.assertRaises(anthropic.NotFoundError) as missing:
            self.ask(model="other")
        self.assertEqual(missing.exception.body["error"]["type"], "not_found_error")
        with self.assertRaises(anthropic.BadRequestError) as bad:
            self.ask([{"role": "user", "content": [{"type": "image", "source": {
                "type": "base64", "media_type": "image/png", "data": "AA=="}}]}])
        self.assertEqual(bad.exception.body["type"], "error")
        self.assertEqual(bad.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("messages[0].content[0]", bad.exception.body["error"]["message"])
        with self.assertRaises(anthropic.BadRequestError) as long:
            self.ask([{"role": "user", "content": "lorem " * 20000}])
        self.assertIn("prompt is too long", long.exception.body["error"]["message"])
        with self.assertRaises(anthropic.AuthenticationError) as key:
            anthropic.Anthropic(base_url=self.server.url(), api_key="wrong", max_retries=0).messages.create(
                model="m", max_tokens=1, messages=QUESTION)
        self.assertEqual(key.exception.body["error"]["type"], "authentication_error")
        for method, path, status in (("GET", "/v1/messages", 405), ("POST", "/v1/messages/batches", 404)):
            got, _, body = self.server.request(method, path, headers={"x-api-key": "secret"})
            self.assertEqual((got, json.loads(body)["type"]), (status, "error"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)

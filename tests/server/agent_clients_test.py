"""An agent loop of the openai-agents package against the demo model, by both of its APIs."""

import asyncio
import json
import os
import sys
import unittest

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import agents
import openai

from program import Server

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "build/pewter"
QUESTION = "What is the weather in Paris?"


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--default-chat-template-kwargs", '{"enable_thinking": false}')

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def run_agent(self, make_model, streamed):
        """What the agent says last, and with what its tool was called."""
        called = []

        def get_weather(city: str, unit: str = "") -> str:
            called.append(city)
            return json.dumps({"city": city, "degrees": 21, "sky": "sunny"})

        async def run():
            async with openai.AsyncOpenAI(base_url=self.server.url("/v1"), api_key="none", max_retries=0) as client:
                agent = agents.Agent(
                    name="weather", model=make_model(model="m", openai_client=client),
                    tools=[agents.function_tool(get_weather, description_override="Get the current weather of a city.",
                                                strict_mode=False)],
                    model_settings=agents.ModelSettings(temperature=0))
                if not streamed:
                    return await agents.Runner.run(agent, QUESTION, max_turns=3)
                result = agents.Runner.run_streamed(agent, QUESTION, max_turns=3)
                async for _ in result.stream_events():
                    pass
                return result

        return asyncio.run(run()).final_output, called

    def test_loop(self):
        for model in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
            for streamed in (False, True):
                with self.subTest(model=model.__name__, streamed=streamed):
                    answer, called = self.run_agent(model, streamed)
                    self.assertEqual(called, ["Paris"])
                    self.assertIn("21 degrees", answer)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)

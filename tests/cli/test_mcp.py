"""`ablate mcp`: a program that knows only its tools, and the schemas of the answers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ablate.budget import Budget
from ablate.cli.agent_tools import Tools
from ablate.cli.answers import ANSWERS
from ablate.store import queries
from ablate.store.writer import Writer
from tests.conftest import TINY, Say

ONE_SEED = TINY.replace("seeds: 2", "seeds: 1")


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return new_tools(tmp_path, Budget(trials=6))


def new_tools(folder: Path, limits: Budget) -> Tools:
    runs = folder / "runs"
    how = ("--executor", "inline")
    return Tools(runs=runs, url=str(runs / "ablate.db"), limits=limits, how=how)


class Stranger:
    """An agent that has read nothing but the names and texts of the tools."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def ask(self, tool: str, **arguments: Any) -> Any:
        answer = await self.client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content[0].text
        return answer.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error
        return str(answer.content[0].text)

    async def study(self) -> dict[str, Any]:
        """Plans within the budget, runs, and reports what it found."""
        listed = await self.client.list_tools()
        assert {"example", "plan", "run", "effects"} <= {
            one.name for one in listed.tools
        }
        assert "inconclusive" in self.client.instructions
        budget = (await self.ask("status"))["budget"]["trials"]
        space = yaml.safe_load((await self.ask("example"))["result"])
        space["recipe"]["epochs"] = 5
        space["data"] = {"name": "digits", "train_images": 400}
        space["recipe"]["warmup_epochs"] = 0
        for seeds in (5, 4, 3, 2):
            space["seeds"] = seeds
            text = yaml.safe_dump(space)
            plan = await self.ask("plan", space=text, name="mine")
            if plan["to_train"] <= budget["limit"] - budget["used"]:
                break
        run = await self.ask("run", space=text, name="mine", seconds=1)
        while run["state"] == "running":
            run = await self.ask("wait", seconds=30)
        return {
            "plan": plan,
            "run": run,
            "effects": await self.ask("effects", study=run["study"]),
            "factors": await self.ask("factors", study=run["study"]),
            "review": await self.ask("review", study=run["study"]),
            "pareto": await self.ask("pareto", study=run["study"]),
            "table": await self.ask("table", study=run["study"]),
        }


@pytest.mark.proof
def test_a_program_that_knows_only_the_tools_reports_a_study(tmp_path: Path) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    words = ["-m", "ablate", "mcp", "--runs", str(tmp_path), "--max-trials", "9"]
    server = StdioServerParameters(
        command=sys.executable, args=[*words, "--executor", "inline"]
    )

    async def session() -> None:
        async with Client(server) as client:
            agent = Stranger(client)
            report = await agent.study()
            assert report["run"]["state"] == "finished", report["run"]["message"]
            assert report["plan"]["trials"] == 8
            assert report["run"]["budget"]["trials"] == {"limit": 9, "used": 8}
            rows = report["effects"]["rows"]
            assert [row["row"] for row in rows] == [1, 2, 3]
            assert all(row["n"] == 2 for row in rows)
            assert {row["factor"] for row in report["factors"]["rows"]} == {
                "shortcuts.count",
                "ffn.kernel",
            }
            assert "too few seeds" in {
                row["finding"] for row in report["review"]["rows"]
            }
            counted = await agent.ask("query", sql="SELECT COUNT(*) AS n FROM trials")
            assert counted["rows"] == [{"n": 8}]
            await within_the_budget(agent)

    asyncio.run(session())


async def within_the_budget(agent: Stranger) -> None:
    """Another study may train one trial, and a third one none."""
    run = await agent.ask("run", space=ONE_SEED, name="second", seconds=60)
    assert run["state"] == "budget used up"
    assert run["budget"]["trials"]["used"] == 9
    text = await agent.refused("run", space=TINY, name="third")
    assert "the budget of this server is used up: 9 of 9 trials" in text
    assert "only a person can raise it" in text


@pytest.mark.proof
def test_the_budget_holds_over_restarts(tools: Tools, tmp_path: Path) -> None:
    first = tools.run(ONE_SEED, "one", seconds=60)
    assert (first.state, first.budget.trials.used) == ("finished", 4)
    again = new_tools(tmp_path, Budget(trials=6))
    second = again.run(TINY.replace("lr: 2e-3", "lr: 1e-3"), "two", seconds=60)
    assert (second.state, second.budget.trials.used) == ("budget used up", 6)
    # Trials that were begun may go on, and there is nothing else to do.
    third = new_tools(tmp_path, Budget(trials=6)).run(ONE_SEED, "one", seconds=60)
    assert third.state == "finished"


@pytest.mark.proof
def test_a_run_is_stopped_and_goes_on(tools: Tools) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    text = TINY.replace("epochs: 3", "epochs: 300")
    started = tools.run(text, "long", seconds=0)
    assert started.state == "running"
    with pytest.raises(ToolError, match="a run of long is still training; call `wait`"):
        tools.run(text, "other")
    deadline = time.monotonic() + 60
    while not tools.status().rows and time.monotonic() < deadline:
        time.sleep(0.5)
    assert tools.status().running == "long"
    stopped = tools.stop()
    assert stopped.state in ("interrupted", "failed"), stopped.message
    assert tools.status().running == ""


def test_mistakes_are_short_answers(tools: Tools) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    with pytest.raises(ToolError, match="unknown key 'kernel'"):
        tools.plan(TINY + "kernel: 3\n", "tiny")
    with pytest.raises(ToolError, match="call `run` first"):
        tools.wait()
    with pytest.raises(ToolError, match="no store"):
        tools.effects("tiny")


@pytest.mark.parametrize("name", ["../../out", "/tmp/out", "", "-x", "a.b", "x" * 65])
def test_a_name_is_no_path(tools: Tools, tmp_path: Path, name: str) -> None:
    """The protocol checks the name, but a call in this process does not."""
    from mcp.server.mcpserver.exceptions import ToolError

    for call in (tools.plan, tools.run):
        with pytest.raises(ToolError, match="is no name of a space"):
            call(TINY, name)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.proof
def test_queries_of_agents_are_limited(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    with Writer(tools.url) as writer:
        assert writer.store_id
    endless = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT {} FROM"
        " c"
    )
    monkeypatch.setattr(queries, "OTHERS_SECONDS", 1.0)
    with pytest.raises(ToolError, match="it took longer than 1 s"):
        tools.query(endless.format("count(*)"))
    with pytest.raises(ToolError, match="returns more than 1,000 rows; ask for less"):
        tools.query(endless.format("x"))
    assert len(tools.query(endless.format("x") + " LIMIT 1000").rows) == 1000


def test_agents_need_a_budget(say: Say) -> None:
    code, _, err = say("mcp")
    assert code == 2
    assert "agents need a budget: add --max-hours 8" in err


@pytest.mark.proof
def test_queries_have_values_that_json_has(tools: Tools) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    tools.run(ONE_SEED, "one", seconds=60)
    found = tools.query("SELECT x'00ff' AS b, 1 AS n")
    assert found.model_dump(mode="json")["rows"] == [{"b": "00ff", "n": 1}]
    with pytest.raises(ToolError, match="the column 'a' twice"):
        tools.query("SELECT 1 AS a, 2 AS a")


def test_waiting_ends_with_the_server(tools: Tools) -> None:
    started = time.monotonic()
    tools.run(TINY.replace("epochs: 3", "epochs: 300"), "long", seconds=0)
    tools.leave()
    tools.wait(60)
    tools.close()
    assert time.monotonic() - started < 50


@pytest.mark.proof
def test_json_of_the_verbs_has_the_published_schemas(say: Say) -> None:
    """Studies with two seeds, so that every verb has rows."""
    Path("tiny.yaml").write_text(TINY)
    verbs = {
        "plan": ("plan", "tiny.yaml"),
        "status": ("status",),
        "trials": ("status", "tiny"),
        "table": ("table", "tiny"),
        "effects": ("effects", "tiny"),
        "factors": ("effects", "tiny", "--of", "factors"),
        "sizes": ("effects", "ladder"),
        "review": ("review", "tiny"),
        "pareto": ("pareto", "tiny"),
    }
    # tests/commits/test_chain.py has the answer of `chain`.
    assert set(verbs) | {"query", "run", "chain"} == set(ANSWERS)
    assert say("run", "tiny.yaml", "--executor", "inline")[0] == 0
    sizes = "across: {size.width: [4, 8], predict: 16}\n"
    Path("ladder.yaml").write_text(TINY.replace("width: 16, ", "") + sizes)
    assert say("run", "ladder.yaml", "--executor", "inline")[0] == 0
    for name, words in verbs.items():
        _, out, _ = say(*words, "--format", "json")
        rows = json.loads(out)
        assert rows, name
        _, printed, _ = say("schema", "--of", name)
        schema = json.loads(printed)
        row = schema["properties"]["rows"] | {"$defs": schema["$defs"]}
        jsonschema.validate(rows, row)
        broken = [
            one | {"row": "one", "study": 1, "finding": 2, "kind": 3} for one in rows
        ]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, row)


def test_an_unknown_answer_is_refused(say: Say) -> None:
    code, _, err = say("schema", "--of", "effect")
    assert code == 2
    assert "unknown --of 'effect'" in err
    assert "effects" in err

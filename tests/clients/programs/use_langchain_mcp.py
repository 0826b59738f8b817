"""langchain-mcp-adapters over HTTP and stdio: fails where an answer is not as it should be."""

from __future__ import annotations

import asyncio
import json
import os

from langchain_mcp_adapters.client import MultiServerMCPClient

ENVIRONMENT = dict(os.environ)
SERVERS = {
    "http": {
        "transport": "streamable_http",
        "url": f"{ENVIRONMENT['MINDFUL_URL']}/mcp?tools=all",
        "headers": {"Authorization": f"Bearer {ENVIRONMENT['MINDFUL_KEY']}"},
    },
    "stdio": {
        "transport": "stdio",
        "command": ENVIRONMENT["MINDFUL_PYTHON"],
        "args": ["-m", "mindful_client", "mcp", "--tools", "all"],
        "env": ENVIRONMENT,
    },
}


async def use(name: str) -> None:
    client = MultiServerMCPClient(SERVERS)
    tools = {tool.name: tool for tool in await client.get_tools(server_name=name)}
    assert len(tools) == 23, sorted(tools)
    fact = f"Ana met {name} in Oslo."
    await tools["memory_add"].ainvoke({"content": fact})
    message = await tools["memory_search"].ainvoke(
        {
            "type": "tool_call",
            "id": "1",
            "name": "memory_search",
            "args": {"query": f"Whom did Ana meet: {name}?"},
        }
    )
    text = message.content if isinstance(message.content, str) else message.content[0]["text"]
    assert fact in [memory["content"] for memory in json.loads(text)["memories"]]
    assert message.artifact["structured_content"]["memories"]
    failure = await tools["memory_get"].ainvoke(
        {"type": "tool_call", "id": "2", "name": "memory_get", "args": {"id": 4711}}
    )
    assert failure.status == "error"
    assert "SQLSTATE: 42704" in str(failure.content)
    (status,) = await client.get_resources(name, uris=["mindful://status"])
    assert "customer-7" in status.as_string()
    assert (await client.get_prompt(name, "remember")) != []


for server in SERVERS:
    asyncio.run(use(server))

"""MCP over stdio and streamable HTTP: each request is one call of mindful's SQL functions as the tenant of its key."""

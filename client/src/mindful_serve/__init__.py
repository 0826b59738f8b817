"""The service: HTTP in OpenAI's form, each request one call of mindful's SQL functions as the tenant of its key."""

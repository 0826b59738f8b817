"""One message and its reply: reads, generates, decides, stores. No other room imports it."""

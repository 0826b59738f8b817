"""The registry of models, what a backend has loaded, and the providers that load them."""

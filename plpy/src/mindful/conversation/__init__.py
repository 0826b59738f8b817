"""What a model is shown: sessions, context, prompt, tools, requested settings, recaps, kept states."""

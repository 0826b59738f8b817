"""Training of LoRA adapters on what a replay run has exported; needs the extra `train`."""

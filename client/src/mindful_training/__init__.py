"""Export of replay runs, and training of LoRA adapters on an export. Training needs the extra `train`."""

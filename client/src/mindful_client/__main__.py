"""Run the command line: python -m mindful_client."""

from mindful_client.cli import main

main(prog_name="mindful")

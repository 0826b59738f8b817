"""Rehearsal: general questions with the base's own answers, trained beside the samples.

Without them a small model forgets: trained on facts and abstentions alone, it abstained from every question.
The evaluation of adapters uses other questions (general_question).
"""

from __future__ import annotations

from mindful_client.client import Client

QUESTIONS = (
    "What is the capital of Portugal?",
    "What is the capital of Austria?",
    "What is the capital of Norway?",
    "What is the capital of Canada?",
    "What is the capital of Poland?",
    "What is the capital of Ireland?",
    "What is the capital of Turkey?",
    "What is the capital of India?",
    "What is the capital of Brazil?",
    "What is the capital of Cuba?",
    "Which planet has rings?",
    "Which planet do we live on?",
    "What is the Moon?",
    "What is the chemical symbol of gold?",
    "What is the chemical symbol of oxygen?",
    "What is salt made of?",
    "Who wrote Hamlet?",
    "Who wrote Don Quixote?",
    "Who painted Starry Night?",
    "Who composed the Moonlight Sonata?",
    "Who invented the telephone?",
    "Who discovered gravity?",
    "What is the largest desert?",
    "What is the largest continent?",
    "What is the longest river in South America?",
    "How many months are there in a year?",
    "How many minutes are there in an hour?",
    "How many legs does a dog have?",
    "How many sides does a triangle have?",
    "What is the opposite of big?",
    "What is the opposite of fast?",
    "What is the opposite of left?",
    "Which animal gives us milk?",
    "Which animal says meow?",
    "What do cows eat?",
    "What is a baby cat called?",
    "What is a group of wolves called?",
    "Which language is spoken in France?",
    "Which language is spoken in Japan?",
    "Which language is spoken in Egypt?",
    "In which continent is Brazil?",
    "In which continent is Germany?",
    "In which country is the Colosseum?",
    "In which country is the Great Wall?",
    "In which country is the Taj Mahal?",
    "What is the first day of the week?",
    "What is the shortest month of the year?",
    "What color is snow?",
    "What color is a ripe banana?",
    "What color is a tomato?",
    "What is bread made of?",
    "What is cheese made of?",
    "What is water vapor?",
    "What is the sun made of?",
    "Why is the sky dark at night?",
    "What do we use an umbrella for?",
    "What is a bicycle?",
    "What does a doctor do?",
    "What does a baker do?",
    "What is photosynthesis?",
    "What is a volcano?",
    "What is an island?",
    "What is democracy?",
    "What is a computer?",
)
_LENGTH = 48


def pairs(client: Client, model: str, most: int) -> list[dict[str, str]]:
    """Return the first questions with the base's greedy answers, without the answers that were cut off."""
    questions = list(QUESTIONS[:most])
    answers = client.llm_generate_many(questions, model=model, max_tokens=_LENGTH) if questions else []
    return [
        {"instruction": question, "input": "", "output": answer.strip()}
        for question, answer in zip(questions, answers or [], strict=True)
        if answer and answer.strip().endswith((".", "!"))
    ]

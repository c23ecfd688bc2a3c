"""The grammar of a conversation: greetings, facts about the user, questions about them, other small talk."""

from __future__ import annotations

from random import Random

from regard.errors import SettingsError
from tools.smalltalk.talk import FAREWELLS, GREETINGS, TALK
from tools.smalltalk.topics import TOPICS, Topic

REACH = 5
"""Number of turns that the program remembers. The user does not ask about facts from earlier turns."""
EXCHANGES = (3, 6)
GREETS, LEAVES, TELLS, ASKS = 0.6, 0.35, 0.45, 0.35
"""Shares of conversations with a greeting and with a farewell, and of exchanges in which the user tells or asks."""
KNOWN, NEVER_TOLD = 0.75, 0.55
"""Probability that the user asks about a known fact, if there is one; and, otherwise, about an unknown fact."""
IGNORES = 0.3
"""Share of the questions of the program that the user does not answer."""
CASUAL = 0.4
"""Share of the turns of the user that are without capital letters and full stops."""


def write(seed: int, count: int) -> tuple[tuple[str, ...], ...]:
    """Generate `count` different conversations."""
    if count < 0:
        raise SettingsError(f"smalltalk: the number of conversations must not be negative, but is {count}")
    chance = Random(seed)
    made: dict[tuple[str, ...], None] = {}  # an ordered set
    while len(made) < count:
        made[Conversation(chance).turns()] = None
    return tuple(made)


class Conversation:
    """One conversation while it is written."""

    def __init__(self, chance: Random):
        self._chance = chance
        self._turns: list[str] = []
        self._told: dict[str, tuple[Topic, str, int]] = {}
        """For each topic that was told: topic, value, and index of the turn."""

    def turns(self) -> tuple[str, ...]:
        """Write the conversation and return its turns."""
        chance = self._chance
        if chance.random() < GREETS:
            self._exchange(chance.choice(GREETINGS.said), chance.choice(GREETINGS.replies))
        for _ in range(chance.randint(*EXCHANGES)):
            dice = chance.random()
            if dice < TELLS:
                self._tell()
            elif dice < TELLS + ASKS:
                self._ask()
            else:
                talk = chance.choice(TALK)
                self._exchange(chance.choice(talk.said), chance.choice(talk.replies))
        if chance.random() < LEAVES:
            self._leave()
        return tuple(self._turns)

    def _tell(self) -> None:
        """The user mentions a fact; the program may ask a question, which the user answers."""
        chance = self._chance
        topic = chance.choice([topic for topic in TOPICS if topic.name not in self._told] or TOPICS)
        value = chance.choice(topic.values)
        self._told[topic.name] = topic, value, len(self._turns)
        heard = chance.choice(topic.heard)
        if topic.asks_back is None or chance.random() < 0.5:
            self._exchange(chance.choice(topic.told).format(x=value), heard.format(x=value))
            return
        back = topic.asks_back
        self._exchange(chance.choice(topic.told).format(x=value), back.question.format(x=value))
        if chance.random() < IGNORES:
            return
        said, reply = chance.choice(back.answers)
        self._exchange(said, reply.format(x=value))

    def _ask(self) -> None:
        """The user asks about a known or an unknown fact, or tells a fact instead."""
        chance = self._chance
        first = len(self._turns) + 1 - REACH
        known = [told for told in self._told.values() if told[2] >= first]
        if known and chance.random() < KNOWN:
            topic, value, _ = chance.choice(known)
            self._exchange(chance.choice(topic.asked), topic.known.format(x=value))
            return
        if chance.random() >= NEVER_TOLD:
            self._tell()
            return
        never = [topic for topic in TOPICS if topic.name not in self._told]
        topic = chance.choice(never)
        self._exchange(chance.choice(topic.asked), topic.unknown)

    def _leave(self) -> None:
        """The user says goodbye; the program replies with the name of the user, if it remembers the name."""
        said = self._chance.choice(FAREWELLS)
        name = self._told.get("name")
        near = name is not None and name[2] >= len(self._turns) + 1 - REACH
        self._exchange(said, f"Goodbye, {name[1]}!" if name and near else "Goodbye! It was nice to talk to you.")

    def _exchange(self, said: str, reply: str) -> None:
        if self._chance.random() < CASUAL:
            said = said.lower().rstrip(".?!")
        self._turns += [said, reply]

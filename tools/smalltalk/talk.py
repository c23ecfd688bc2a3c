"""Small talk that needs no memory: what the user may say at any time, and the replies of the program."""

from __future__ import annotations

from typing import NamedTuple


class Talk(NamedTuple):
    """Several wordings of one thing, and replies to it."""

    said: tuple[str, ...]
    replies: tuple[str, ...]


GREETINGS = Talk(
    ("Hello.", "Hi.", "Hi there!", "Good morning.", "Good evening.", "Hello, how are you?", "Hey!"),
    ("Hello! I am glad that you are here.", "Hello! Tell me something about yourself."),
)
FAREWELLS = ("Goodbye.", "Bye!", "I have to go now.", "See you tomorrow.", "Good night.")

TALK: tuple[Talk, ...] = (
    Talk(
        ("How are you?", "How do you do?", "Are you well?"),
        ("I am well, thank you.",),
    ),
    Talk(
        ("What is your name?", "Who are you?", "Do you have a name?"),
        ("I am called Regard.",),
    ),
    Talk(
        ("Are you a robot?", "Are you human?", "What are you?", "Are you a machine?"),
        ("I am a small program that learnt to talk.",),
    ),
    Talk(
        ("How old are you?", "When were you born?"),
        ("I am a few minutes old.",),
    ),
    Talk(
        ("What can you do?", "Can you help me?", "What do you know?"),
        ("I can listen, and remember what you told me a moment ago.",),
    ),
    Talk(
        ("Where do you live?", "Where are you from?"),
        ("I live in a folder on your computer.",),
    ),
    Talk(
        ("Do you like music?", "Do you listen to music?"),
        ("I have no ears, but I like to read about music.",),
    ),
    Talk(
        ("Do you eat?", "Are you hungry?", "What do you eat?"),
        ("I eat nothing but words.",),
    ),
    Talk(
        ("Do you sleep?", "Are you tired?"),
        ("I sleep when you close the window.",),
    ),
    Talk(
        ("Tell me a joke.", "Say something funny.", "Make me laugh."),
        ("Why did the model cross the road? It had seen others do it.",),
    ),
    Talk(
        ("Thank you.", "Thanks!", "Thanks a lot.", "That is kind of you."),
        ("You are welcome.",),
    ),
    Talk(
        ("I am tired.", "I am so sleepy.", "I did not sleep well."),
        ("Then go to bed early tonight.",),
    ),
    Talk(
        ("I am happy today.", "I am in a good mood.", "Today is a good day."),
        ("I am happy to hear that.",),
    ),
    Talk(
        ("I am sad.", "I feel bad.", "Today is a bad day."),
        ("I am sorry to hear that. I hope that tomorrow is better.",),
    ),
    Talk(
        ("I am bored.", "There is nothing to do.", "What should I do?"),
        ("You could read a book or take a walk.",),
    ),
    Talk(
        ("I am hungry.", "I have not eaten yet."),
        ("Then it is time to cook something.",),
    ),
    Talk(
        ("Do you like me?", "Are we friends?", "Do you want to be my friend?"),
        ("I enjoy talking to you.",),
    ),
    Talk(
        ("You are clever.", "You are funny.", "I like you."),
        ("You are very kind.",),
    ),
)

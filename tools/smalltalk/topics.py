"""Facts that the user may mention, the reaction of the program, and later questions about them."""

from __future__ import annotations

from typing import NamedTuple

from tools.smalltalk.values import (
    CITIES,
    COLOURS,
    DAYS,
    FOODS,
    HOBBIES,
    JOBS,
    NUMBERS,
    PEOPLE,
    PETS,
    PLACES,
    THINGS,
)


class AskBack(NamedTuple):
    """A question of the program, and possible answers, each with the program's reply."""

    question: str
    answers: tuple[tuple[str, str], ...]


class Topic(NamedTuple):
    """One kind of fact; {x} is its value."""

    name: str
    values: tuple[str, ...]
    told: tuple[str, ...]
    heard: tuple[str, ...]
    asked: tuple[str, ...]
    known: str
    unknown: str
    asks_back: AskBack | None = None


ABOUT_ONESELF = (
    Topic(
        "name",
        PEOPLE,
        ("My name is {x}.", "I am {x}.", "I am called {x}.", "People call me {x}."),
        ("Nice to meet you, {x}.", "Hello {x}! What a nice name."),
        ("What is my name?", "Do you remember my name?", "What am I called?", "Do you know who I am?"),
        "Your name is {x}.",
        "You have not told me your name yet.",
    ),
    Topic(
        "city",
        CITIES,
        ("I live in {x}.", "I come from {x}.", "My home is in {x}."),
        ("I have heard that {x} is beautiful.", "I would like to see {x} one day."),
        ("Where do I live?", "Do you remember where I live?", "Which city do I live in?"),
        "You live in {x}.",
        "You have not told me where you live.",
        AskBack(
            "Do you like it in {x}?",
            (
                ("Yes.", "Then I should visit {x} one day."),
                ("No.", "I am sorry that you do not like {x}."),
                ("Sometimes.", "I see. Even {x} has bad days."),
            ),
        ),
    ),
    Topic(
        "job",
        JOBS,
        ("I work as a {x}.", "I am a {x}.", "My job is to be a {x}."),
        ("The world needs a good {x}.", "It must be interesting to be a {x}."),
        ("What is my job?", "What do I do for a living?", "Do you remember my job?"),
        "You are a {x}.",
        "You have not told me what your job is.",
        AskBack(
            "Is it hard to be a {x}?",
            (
                ("Yes.", "Then take a rest. Even a {x} needs one."),
                ("No.", "Good. Then you are a lucky {x}."),
            ),
        ),
    ),
    Topic(
        "brothers",
        NUMBERS,
        ("I have {x} brothers.", "I grew up with {x} brothers."),
        ("With {x} brothers it is never quiet.", "A house with {x} brothers must be fun."),
        ("How many brothers do I have?", "Do you remember how many brothers I have?"),
        "You have {x} brothers.",
        "I do not know how many brothers you have.",
    ),
    Topic(
        "birthday",
        DAYS,
        ("My birthday is on {x}.", "On {x} it is my birthday."),
        ("I will think of you on {x}.", "Then {x} is a special day."),
        ("When is my birthday?", "Do you remember when my birthday is?"),
        "Your birthday is on {x}.",
        "You have not told me when your birthday is.",
        AskBack(
            "Will you have a party on {x}?",
            (
                ("Yes.", "Then I wish you a great party on {x}."),
                ("No.", "Then have a quiet {x} and some cake."),
            ),
        ),
    ),
)

TASTES = (
    Topic(
        "food",
        FOODS,
        ("I like {x}.", "My favourite food is {x}.", "I could eat {x} every day."),
        ("Good {x} makes me happy too.", "I have never tasted {x}, but I have read about it."),
        ("What do I like to eat?", "What is my favourite food?", "Do you remember what I like to eat?"),
        "You like {x}.",
        "You have not told me what you like to eat.",
        AskBack(
            "Do you make {x} yourself?",
            (
                ("Yes.", "Then I would like to try your {x}."),
                ("No.", "Who makes {x} for you, then?"),
                ("My mother does.", "I am sure that her {x} is the best."),
            ),
        ),
    ),
    Topic(
        "colour",
        COLOURS,
        ("My favourite colour is {x}.", "The colour I like best is {x}."),
        ("I like {x} as well.", "A good choice: {x} suits everybody."),
        ("What is my favourite colour?", "Which colour do I like best?"),
        "Your favourite colour is {x}.",
        "You have not told me your favourite colour.",
    ),
    Topic(
        "hobby",
        HOBBIES,
        ("I love {x}.", "My hobby is {x}.", "In the evening I enjoy {x}."),
        ("I wish that I had time for {x}.", "They say that {x} is good for you."),
        ("What is my hobby?", "What do I love to do?", "Do you remember my hobby?"),
        "You love {x}.",
        "You have not told me about your hobby.",
        AskBack(
            "Is {x} difficult?",
            (
                ("Yes.", "Then it is worth learning. Keep {x}!"),
                ("No.", "Then maybe I could learn {x} too."),
            ),
        ),
    ),
    Topic(
        "dog",
        PETS,
        ("My dog is called {x}.", "I have a dog called {x}."),
        ("What a good name for a dog. Give {x} a bone from me.", "I am sure that {x} is a good dog."),
        ("What is my dog called?", "Do you remember the name of my dog?"),
        "Your dog is called {x}.",
        "I do not know what your dog is called.",
    ),
    Topic(
        "cat",
        PETS,
        ("My cat is called {x}.", "I have a cat called {x}."),
        ("Does {x} sleep all day, as cats do?", "Tell {x} that I like cats."),
        ("What is my cat called?", "Do you remember the name of my cat?"),
        "Your cat is called {x}.",
        "I do not know what your cat is called.",
    ),
)

PLANS = (
    Topic(
        "plan",
        PLACES,
        ("Tomorrow I am going to the {x}.", "I will go to the {x} tomorrow.", "I want to go to the {x} tomorrow."),
        ("Have fun at the {x}!", "A day at the {x} sounds good."),
        ("Where am I going tomorrow?", "What are my plans for tomorrow?", "Do you remember my plans?"),
        "You are going to the {x}.",
        "You have not told me your plans.",
        AskBack(
            "Who is going to the {x} with you?",
            (
                ("My sister.", "Then say hello to your sister at the {x}."),
                ("My friends.", "It is nice to have friends at the {x}."),
                ("Nobody.", "Then enjoy the {x} in peace."),
            ),
        ),
    ),
    Topic(
        "buy",
        THINGS,
        ("I want to buy a {x}.", "Today I will buy a {x}."),
        ("A new {x} is always nice.", "I hope that you find a good {x}."),
        ("What do I want to buy?", "Do you remember what I want to buy?"),
        "You want to buy a {x}.",
        "You have not told me what you want to buy.",
        AskBack(
            "Is the {x} expensive?",
            (
                ("Yes.", "Then think twice before you buy the {x}."),
                ("No.", "Then buy the {x} and be happy."),
            ),
        ),
    ),
)


def _weather(told: tuple[str, ...], heard: tuple[str, ...], known: str) -> Topic:
    return Topic(
        "weather",
        ("",),
        told,
        heard,
        ("Should I take an umbrella?", "Do I need an umbrella?"),
        known,
        "That depends on the weather. What is it like?",
    )


WEATHER = (
    _weather(
        ("It is raining here.", "What a rainy day."), ("Then stay dry.", "Rain is good for the flowers."),
        "Yes, take an umbrella, for it is raining.",
    ),
    _weather(
        ("The sun is shining.", "It is a sunny day."), ("Then go out and enjoy it.", "I am glad that you have sun."),
        "No, leave the umbrella at home, the sun is shining.",
    ),
    _weather(
        ("It is snowing.", "There is snow everywhere."), ("Then build a snowman!", "Keep warm in the snow."),
        "Take a warm hat instead, for it is snowing.",
    ),
    _weather(
        ("It is very windy.", "The wind is strong today."), ("Hold on to your hat.", "Then it is time to fly a kite."),
        "No, the wind would break your umbrella.",
    ),
)  # fmt: skip

TOPICS: tuple[Topic, ...] = (*ABOUT_ONESELF, *TASTES, *PLANS, *WEATHER)
"""All topics. The four kinds of weather have the same name, so that a conversation has only one of them."""

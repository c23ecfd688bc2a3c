"""A FAQ as a small shop has it: what it knows, the same asked in other words, and what nobody there can answer."""

from __future__ import annotations

from regard.tasks.retrieve.data import KnowledgeEntry

CAFE = {
    "What are your opening hours?": "We are open from 8 to 18 o'clock, Monday to Saturday.",
    "Are you open on Sundays?": "No, on Sundays we are closed.",
    "Where are you?": "At 12 Harbour Street, next to the old town hall.",
    "Do you roast your own coffee?": "Yes, roasted here every Monday.",
    "Can I pay by card?": "Yes, we take all cards from five euros on.",
    "Is there free wifi?": "Yes, ask at the bar for the password.",
    "Do you have vegan cakes?": "There are two vegan cakes every day.",
    "Can I bring my dog?": "Dogs are welcome, and there is water for them.",
    "How can I reserve a table?": "Call us or write to table@cafe.example.",
    "Do you sell gift vouchers?": "Yes, for 10, 20 and 50 euros.",
    "Is there parking nearby?": "Behind the church, one euro an hour.",
    "Do you deliver?": "On Tuesdays and Thursdays we deliver within the town.",
    "Is the cafe accessible by wheelchair?": "Yes, there is a ramp at the back door.",
    "Do you have oat milk?": "Oat and soy milk cost nothing extra.",
    "Can I rent the room for a party?": "The back room can be rented for up to 30 people.",
    "I lost my umbrella at your place.": "Lost things are kept at the bar for a month.",
    "Are you hiring?": "We look for a waiter; send your application to jobs@cafe.example.",
}
STRANGERS = (
    "What is your name?",
    "Do you sell heroin?",
    "I love you",
    "How old are you?",
    "Who is the president of France?",
    "What is the weather like tomorrow?",
    "Can you write a poem?",
    "Where do you live?",
    "Tell me a joke",
    "What is the meaning of life?",
    "Do you have a brother?",
    "How tall is the Eiffel Tower?",
    "Is there life on Mars?",
    "Will you marry me?",
    "What do you think about politics?",
    "Are you a robot?",
)
PARAPHRASES = {
    "when are the opening hours": "What are your opening hours?",
    "what time do you open on Monday?": "What are your opening hours?",
    "open on a Sunday?": "Are you open on Sundays?",
    "Which street are you in?": "Where are you?",
    "where does your coffee get roasted": "Do you roast your own coffee?",
    "Do you accept credit cards?": "Can I pay by card?",
    "can we pay with a card": "Can I pay by card?",
    "what's the wifi password": "Is there free wifi?",
    "any vegan cake today?": "Do you have vegan cakes?",
    "Are dogs allowed?": "Can I bring my dog?",
    "may my dog come in": "Can I bring my dog?",
    "I would like to reserve a table for two": "How can I reserve a table?",
    "I want to buy a gift voucher": "Do you sell gift vouchers?",
    "where can I park my car": "Is there parking nearby?",
    "do you deliver to the town centre?": "Do you deliver?",
    "Can I come in with a wheelchair?": "Is the cafe accessible by wheelchair?",
    "is oat milk extra?": "Do you have oat milk?",
    "we want to rent a room for a birthday party": "Can I rent the room for a party?",
    "I forgot my umbrella yesterday": "I lost my umbrella at your place.",
    "how do I send an application?": "Are you hiring?",
}


def cafe() -> list[KnowledgeEntry]:
    """The entries of the FAQ."""
    return [KnowledgeEntry((question,), answer) for question, answer in CAFE.items()]

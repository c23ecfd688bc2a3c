"""Values of the facts: names, cities, food and so on."""

from __future__ import annotations


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PEOPLE = _listed(
    "Anna Ben Clara David Emma Felix Grace Hugo Irene Jonas Karen Leo Maria Nina Oscar Paula Quentin Rosa Simon Tina "
    "Ursula Victor Wanda Xavier Yara Zoe Alice Boris Cora Dario Elena Frank Gina Henry Ida Jack Kate Luca Mia Noah"
)
PETS = _listed("Rex Bella Max Luna Rocky Daisy Coco Milo Nero Ruby Toby Lilly")
CITIES = _listed(
    "Rome Paris London Berlin Madrid Vienna Lisbon Oslo Athens Dublin Prague Turin Milan Naples Zurich Geneva Lyon "
    "Porto Seville Hamburg Munich Cologne Krakow Warsaw Helsinki"
)
FOODS = _listed("pizza pasta soup fish rice salad bread cheese chocolate curry pancakes apples risotto potatoes")
COLOURS = _listed("red blue green yellow orange purple black white pink brown")
HOBBIES = _listed("reading swimming painting dancing singing cooking fishing running climbing sewing gardening")
JOBS = _listed("teacher nurse baker farmer driver painter doctor lawyer cook pilot tailor")
NUMBERS = _listed("two three four five six")
DAYS = _listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
PLACES = _listed("beach mountains cinema museum theatre market zoo library lake concert")
THINGS = _listed("book hat lamp bicycle guitar coat watch chair camera tent")

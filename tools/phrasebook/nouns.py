"""The nouns: English, Italian with gender, and tags for what each thing can do or what can be done with it.

One noun per line: `english | italian gender | tags`. An irregular English plural follows a slash; `+` joins the
masculine and the feminine of a trade; gender `x` is masculine in the singular and feminine in the plural. Of the tags,
`mass` nouns have no plural, `pair` nouns no singular, `proper` ones no article, and a `portion` names its kind in the
singular ("I like pizza"); the others are the semantic classes that verbs and adjectives require.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tools.phrasebook.english_words import plural
from tools.phrasebook.italian_words import pluralise

_NOUNS = """
apple | mela f | food fruit
pear | pera f | food fruit
orange | arancia f | food fruit
banana | banana f | food fruit
strawberry | fragola f | food fruit
tomato | pomodoro m | food vegetable
potato | patata f | food vegetable hot
carrot | carota f | food vegetable
mushroom | fungo m | food vegetable
egg | uovo x | food hot fresh
sandwich | panino m | food snack
biscuit | biscotto m | food sweet snack
ice cream | gelato m | food portion sweet snack
cake | torta f | food portion sweet baked
pizza | pizza f | food portion hot baked
salad | insalata f | food portion fresh
soup | zuppa f | food portion hot
bread | pane m | food mass fresh baked
cheese | formaggio m | food mass fresh
meat | carne f | food mass hot
fish | pesce m | food mass hot fresh
rice | riso m | food mass hot
pasta | pasta f | food mass hot
chicken | pollo m | food mass hot
chocolate | cioccolato m | food mass sweet
water | acqua f | drink mass cool
wine | vino m | drink mass choice
milk | latte m | drink mass cool fresh
coffee | caffè m | drink mass hotdrink
tea | tè m | drink mass hotdrink
beer | birra f | drink mass cool

book | libro m | text long item give choice
newspaper | giornale m | text item
magazine | rivista f | text item
novel | romanzo m | text long written choice
story | storia f | text long written told
poem | poesia f | text written
article | articolo m | text long written
recipe | ricetta f | text lesson
letter | lettera f | text long mail
email | email f | text long mail
message | messaggio m | text mail
fairy tale | favola f | text told
joke | barzelletta f | told
secret | segreto m | told
dream | sogno m | told
postcard | cartolina f | text mail

shirt | camicia f | clothes coloured
dress | vestito m | clothes coloured
hat | cappello m | clothes coloured small
jacket | giacca f | clothes coloured warm
coat | cappotto m | clothes coloured warm
skirt | gonna f | clothes coloured
scarf/scarves | sciarpa f | clothes coloured warm small give
tie | cravatta f | clothes coloured give
jumper | maglione m | clothes coloured warm
glove/gloves | guanto m | clothes coloured warm small pair
shoe/shoes | scarpa f | clothes coloured soft pair
boot/boots | stivale m | clothes coloured soft pair
trouser/trousers | pantalone m | clothes coloured pair
glass/glasses | occhiale m | small item pair

key | chiave f | small item
phone | telefono m | small item machine
ring | anello m | small item give
watch | orologio m | small item give machine
wallet | portafoglio m | small item full
umbrella | ombrello m | small item coloured tool
ticket | biglietto m | small item
passport | passaporto m | small shown
notebook | quaderno m | small item coloured
pen | penna f | small item coloured tool
pencil | matita f | small item coloured tool
dictionary | dizionario m | item tool heavy
photo | foto f | item give shown
map | mappa f | item tool shown
knife/knives | coltello m | item tool
flower | fiore m | coloured give drawn
toy | giocattolo m | item give small
gift | regalo m | item give choice
ball | palla f | item coloured
bag | borsa f | luggage coloured full small
suitcase | valigia f | luggage coloured full
backpack | zaino m | luggage coloured full small
box | scatola f | luggage full opened
bottle | bottiglia f | full opened fragile
cup | tazza f | fragile coloured dishes
vase | vaso m | fragile
plate | piatto m | fragile dishes
mirror | specchio m | furniture fragile
lamp | lampada f | furniture fragile switch machine
computer | computer m | machine switch tool
radio | radio f | machine switch heard
television | televisione f | machine switch
oven | forno m | switch
light | luce f | switch

hand | mano f | body pair
foot/feet | piede m | body pair
face | viso m | body
tooth/teeth | dente m | teeth pair
hair/hair | capello m | hair pair
leg | gamba f | limb
arm | braccio m | limb

table | tavolo m | furniture surface built
desk | scrivania f | furniture surface
chair | sedia f | furniture surface
bed | letto m | furniture surface soft
sofa | divano m | furniture surface soft
armchair | poltrona f | furniture surface soft
carpet | tappeto m | furniture surface coloured
shelf/shelves | scaffale m | surface
drawer | cassetto m | container opened
wardrobe | armadio m | container opened furniture
fridge | frigorifero m | fridge opened
painting | quadro m | furniture give shown

car | macchina f | vehicle driven coloured owned fixed
bicycle | bicicletta f | vehicle coloured owned fixed
motorbike | moto f | vehicle coloured owned fixed
boat | barca f | vehicle coloured owned fixed built drawn
lorry | camion m | driven
train | treno m | transport fast
bus | autobus m | transport driven
taxi | taxi m | transport driven
plane | aereo m | transport fast

house | casa f | building owned built drawn cleaned landmark
room | stanza f | room cleaned
kitchen | cucina f | room cleaned
bathroom | bagno m | room cleaned
bedroom | camera f | room cleaned
office | ufficio m | room cleaned
door | porta f | opened landmark
window | finestra f | opened landmark cleaned
garden | giardino m | owned drawn
shop | negozio m | opened building landmark
museum | museo m | sight landmark
church | chiesa f | sight landmark building
castle | castello m | sight building drawn
palace | palazzo m | sight building
market | mercato m | sight
island | isola f | sight
city | città f | sight
village | villaggio m | sight
street | strada f | road wide narrow crowded
square | piazza f | road wide crowded
bridge | ponte m | road long narrow built landmark crowded
river | fiume m | road wide deep
lake | lago m | road wide deep
forest | foresta f | road dark
field | campo m | road wide muddy
tree | albero m | landmark drawn tall
fountain | fontana f | landmark
Rome | Roma f | proper city
Milan | Milano f | proper city
Florence | Firenze f | proper city
Venice | Venezia f | proper city
Naples | Napoli f | proper city
Turin | Torino f | proper city
Paris | Parigi f | proper city
London | Londra f | proper city

film | film m | show long choice
match | partita f | watched match
show | spettacolo m | show
song | canzone f | heard sung
music | musica f | heard mass subject
noise | rumore m | noise
voice | voce f | noise
concert | concerto m | heard
guitar | chitarra f | instrument owned
piano | pianoforte m | instrument
violin | violino m | instrument owned
flute | flauto m | instrument
lesson | lezione f | lesson work
question | domanda f | lesson answered
problem | problema m | lesson
exercise | esercizio m | lesson work
rule | regola f | lesson
word | parola f | lesson
job | lavoro m | work
bill | conto m | bill
rent | affitto m | bill
fine | multa f | bill
debt | debito m | bill
history | storia f | subject mass
mathematics | matematica f | subject mass
physics | fisica f | subject mass
biology | biologia f | subject mass
Italian | italiano m | language mass
English | inglese m | language mass
French | francese m | language mass
German | tedesco m | language mass
Spanish | spagnolo m | language mass

animal | animale m | animal free
dog | cane m | animal pet
cat | gatto m | animal pet drawn
horse | cavallo m | animal farm drawn
rabbit | coniglio m | animal pet farm
bird | uccello m | animal free drawn
cow | mucca f | animal farm
goat | capra f | animal farm
hen | gallina f | animal farm
duck | anatra f | animal farm
goose/geese | oca f | animal farm
fox | volpe f | animal wild
wolf/wolves | lupo m | animal wild
bear | orso m | animal wild
turtle | tartaruga f | animal pet
mouse/mice | topo m | animal free
squirrel | scoiattolo m | animal free

mother | madre f | kin
father | padre m | kin
brother | fratello m | kin several
sister | sorella f | kin several
uncle | zio m | kin several
aunt | zia f | kin several
grandfather | nonno m | kin
grandmother | nonna f | kin
son | figlio m | kin several
daughter | figlia f | kin several
husband | marito m | kin
wife/wives | moglie f | kin
parent | genitore m | kin pair
friend | amico+amica m | companion peer
colleague | collega+collega m | companion peer
neighbour | vicino+vicina m | companion
teacher | insegnante+insegnante m | role trade
doctor | medico+dottoressa m | role trade
student | studente+studentessa m | role trade
lawyer | avvocato+avvocata m | role trade
psychologist | psicologo+psicologa m | role trade
journalist | giornalista+giornalista m | role trade
artist | artista+artista m | role trade
dentist | dentista+dentista m | role trade
singer | cantante+cantante m | role trade
musician | musicista+musicista m | role trade
writer | scrittore+scrittrice m | role trade
painter | pittore+pittrice m | role trade
nurse | infermiere+infermiera m | role trade
waiter | cameriere+cameriera m | role trade
cook | cuoco+cuoca m | role trade
farmer | contadino+contadina m | role trade
scientist | scienziato+scienziata m | role trade
tourist | turista m | role
foreigner | straniero m | role
boy | ragazzo m | role
girl | ragazza f | role
child/children | bambino m | role
man/men | uomo m | role adult
woman/women | donna f | role adult
"""


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in both languages."""

    english: str
    english_plural: str
    italian: str
    italian_plural: str
    feminine: bool
    feminine_plural: bool
    """Whether the plural is feminine; some nouns change their gender (l'uovo, le uova)."""
    her_trade: str
    """The feminine singular of a trade, for "Maria è una dottoressa"; empty where it is not needed."""
    tags: frozenset[str]

    @property
    def human(self) -> bool:
        """Whether English uses he or she for it."""
        return not self.tags.isdisjoint(("kin", "companion", "role"))


def _parse(line: str) -> Noun:
    english, italian, tags = (column.strip() for column in line.split("|"))
    singular, _, irregular = english.partition("/")
    forms, gender = italian.split()
    form, _, her_trade = forms.partition("+")
    feminine, feminine_plural = gender == "f", gender in "fx"
    italian_plural = pluralise(form, feminine)
    kinds = frozenset(tags.split())
    return Noun(
        singular, irregular or plural(singular), form, italian_plural, feminine, feminine_plural, her_trade, kinds
    )


@functools.cache
def nouns() -> tuple[Noun, ...]:
    """Every noun, in the order of the table."""
    return tuple(_parse(line) for line in _NOUNS.splitlines() if line)


@functools.cache
def nouns_with(tags: frozenset[str]) -> tuple[Noun, ...]:
    """The nouns that have at least one of the tags."""
    return tuple(noun for noun in nouns() if not noun.tags.isdisjoint(tags))


def noun(english: str) -> Noun:
    """The noun with that English name."""
    return next(noun for noun in nouns() if noun.english == english)

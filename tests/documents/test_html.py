"""HTML: what is a text, and where its tags go."""

import pytest

from regard.documents import parse
from tests.documents.answers import Said, said


def rebuilt(source, *answers):
    return parse("html", source).rebuild(list(answers))


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<p>One.</p><p>Two.</p>", ["One.", "Two."]),
        ("<ul><li>One<li>Two</ul>", ["One", "Two"]),
        ("plain", ["plain"]),
        ("a <b>red</b> dog", ["a red dog"]),
        ("<p>a\n   red\t dog </p>", ["a red dog"]),
        ("fish &amp; chips &lt;b&gt; caf&eacute;", ["fish & chips <b> café"]),
        ("<h1>42</h1> <p>--- 17 %</p>", []),
        ("<script>var a = 'text';</script><style>p { color: red }</style>", []),
        ("<pre>some code</pre> after", ["after"]),
        ("<p translate='no'>Name</p><p class='a notranslate'>Name</p><p>Text</p>", ["Text"]),
        ("<p translate=no>Name<p>Text", ["Text"]),
        ("<div translate=no><div>a</div>b</div>c", ["c"]),
        ("<title>A &amp; B</title><body>C", ["A & B", "C"]),
        ("<a>Home</a> <a>About us</a>", ["Home", "About us"]),
        ("read <a>this</a> and <a>that</a>", ["read this and that"]),
        ("one<br>two", ["one two"]),
        ("one<wbr>two", ["onetwo"]),
        ("<button>Save</button><button>Cancel</button>", ["Save", "Cancel"]),
        ("<select><option>One<option>Two</select>", ["One", "Two"]),
        ("<img alt='A dog' src='x.png' title=\"A title\">", ["A dog", "A title"]),
        ("<input type=submit value='Send'><input type=text value='Ann' placeholder='Name'>", ["Send", "Name"]),
        ('<meta name="description" content="A page"><meta name="author" content="Ann">', ["A page"]),
        ("call <code>f(x)</code> now", ["call f(x) now"]),
        ("call <code>f(x, y, z)</code> now", ["call now"]),
        ("<code>only_code</code>.", []),
        ("<textarea>draft</textarea><svg><text>a</text></svg>", []),
        ("<!-- a comment -->text", ["text"]),
        ("<p>2 < 3 and a<b", ["2 < 3 and a<b"]),
    ],
)
def test_texts(source, texts):
    assert parse("html", source).texts == texts


def test_a_tag_goes_with_its_words():
    answer = said("the red house", "la casa rossa", "0-0 1-2 2-1")
    assert rebuilt("<p>the <b>red</b> house</p>", answer) == "<p>la casa <b>rossa</b></p>"
    assert rebuilt('the red <a href="#">house</a>', answer) == 'la <a href="#">casa</a> rossa'
    assert rebuilt("<i>the</i> <b>red</b> <u>house</u>", answer) == "<i>la</i> <u>casa</u> <b>rossa</b>"
    assert rebuilt("the <i><b>red</b> house</i>", answer) == "la <i>casa <b>rossa</b></i>"
    assert rebuilt("<b>the red house</b>", answer) == "<b>la casa rossa</b>"


def test_one_word_becomes_several_and_several_become_one():
    source = "I am <b>trendy</b> <i>I think</i>"
    answer = said("I am trendy I think", "Io sono alla moda penso", "0-0 1-1 2-2 2-3 3-4 4-4")
    assert rebuilt(source, answer) == "Io sono <b>alla moda</b> <i>penso</i>"


def test_an_element_stays_one_even_if_its_words_part():
    """It covers what lies between, if that is little; else the larger part."""
    one = said("he took it off", "er zog es aus", "0-0 1-1 3-3 2-2")
    assert rebuilt("he <b>took</b> it <b>off</b>", one) == "er <b>zog</b> es <b>aus</b>"
    two = said("he took off it", "er zog es aus", "0-0 1-1 2-3 3-2")
    assert rebuilt("he <b>took off</b> it", two) == "er <b>zog es aus</b>"


def test_an_element_that_nothing_renders_still_shows():
    answer = said("do you see", "vedi", "2-0")
    assert rebuilt("do <a href='#'>you</a> see", answer) == "<a href='#'>vedi</a>"


def test_what_has_only_a_place():
    answer = said("one two three", "uno due tre", "0-0 1-1 2-2")
    assert rebuilt("one<br>two three", answer) == "uno<br>due tre"
    assert rebuilt("one two <img src=x> three", answer) == "uno due <img src=x> tre"
    assert rebuilt("one <!-- c -->two three", answer) == "uno <!-- c -->due tre"
    swapped = said("one two three", "due tre uno", "0-2 1-0 2-1")
    assert rebuilt("one two<br>three", swapped) == "due<br>tre uno"


def test_code_and_names_stay_as_they_are():
    copied = said("call f ( ) now".replace(" ( ) ", "() "), "rufe jetzt f() auf", "0-0 0-5 1-2 2-3 3-4 4-1")
    assert rebuilt("call <code>f()</code> now", copied) == "rufe jetzt <code>f()</code> auf"
    mangled = said("call run now", "rufe jetzt laufe auf", "0-0 0-3 1-2 2-1")
    assert rebuilt("call <code>run</code> now", mangled) == "rufe jetzt <code>run</code> auf"
    name = said("I like Apple", "Mir gefällt Apfel", "0-0 1-1 2-2")
    assert rebuilt("I like <span translate=no>Apple</span>", name) == "Mir gefällt <span translate=no>Apple</span>"


def test_text_is_escaped_and_a_script_never_comes_from_a_translation():
    assert rebuilt("<p>hello</p>", Said("<script>alert(1)</script> & so")) == (
        "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp; so</p>"
    )
    made = rebuilt("<img alt='a dog'>", Said("ein 'Hund' \"<b>"))
    assert made == "<img alt='ein &#x27;Hund&#x27; &quot;&lt;b&gt;'>"


def test_white_space_around_a_text_stays():
    assert rebuilt("<p>\n   hello \n</p>\n", Said("ciao")) == "<p>\n   ciao \n</p>\n"
    assert rebuilt("<td>&nbsp;hello</td>", Said("ciao")) == "<td>&nbsp;ciao</td>"


def test_tags_inside_a_translated_attribute_and_text_are_kept_apart():
    source = '<p title="A title">see <img alt="a dog"> here</p>'
    document = parse("html", source)
    answers = {"A title": Said("Ein Titel"), "a dog": Said("ein Hund"), "see here": Said("siehe hier")}
    made = document.rebuild([answers[text] for text in document.texts])
    assert made == '<p title="Ein Titel">siehe <img alt="ein Hund"> hier</p>'


def test_malformed_markup_stays():
    assert rebuilt("a <b>red dog", said("a red dog", "ein roter Hund", "0-0 1-1 2-2")) == "ein <b>roter Hund"
    answer = said("red dog here", "roter Hund hier", "0-0 1-1 2-2")
    assert rebuilt("<b>red <i>dog</b> here</i>", answer) == "<b>roter <i>Hund</b> hier</i>"
    assert rebuilt("<a><p>red dog here</p></a>", answer) == "<a><p>roter Hund hier</p></a>"


def test_deep_nesting_is_no_danger():
    source = "<b>" * 3000 + "word" + "</b>" * 3000
    assert rebuilt(source, Said("Wort")) == source.replace("word", "Wort")


def test_alignment_is_asked_for_only_where_it_helps():
    assert not parse("html", "<p><b>One.</b></p><ul><li><a href='#'>Two</a></ul><img alt='dog'>").needs_alignment
    assert parse("html", "a <b>red</b> dog").needs_alignment
    assert parse("html", "see https://a.org now").needs_alignment
    assert not parse("html", "see https://a.org").needs_alignment


def test_words_counted_otherwise_are_placed_by_their_share():
    answer = said("a b c d", "a b c d", "0-0 1-1 2-2 3-3")
    made = parse("html", "one <b>two</b>").rebuild([Said("uno due", answer.alignment)])
    assert made == "uno <b>due</b>"


def test_white_space_around_what_is_put_back():
    source = "their son likes the <i translate=no>trousers</i> now"
    answer = said(
        "their son likes the trousers now", "al figlio piacciono i pantaloni", "0-0 1-1 2-2 3-3 4-4 3-4 5-4 0-4"
    )
    assert rebuilt(source, answer) == "al figlio piacciono i <i translate=no>trousers</i> pantaloni"
    link = "see <a href='#'>https://a.org/b</a> now"
    assert rebuilt(link, said("see now", "siehe jetzt", "0-0 1-1")) == "siehe <a href='#'>https://a.org/b</a> jetzt"
    shared = said("the trousers", "i pantaloni", "0-0 0-1 1-1")
    assert rebuilt("the <i translate=no>trousers</i>", shared) == "i <i translate=no>trousers</i>"


def test_a_break_after_a_sentence_ends_the_text():
    assert parse("html", "One two.<br>Three<br>four").texts == ["One two.", "Three four"]
    assert rebuilt("One.<br>Two.", Said("Uno."), Said("Due.")) == "Uno.<br>Due."

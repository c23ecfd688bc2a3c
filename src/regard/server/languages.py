"""Names of languages, in English, by their codes (ISO 639)."""

from __future__ import annotations

_NAMES = """
af Afrikaans|am Amharic|ar Arabic|as Assamese|ast Asturian|az Azerbaijani|ba Bashkir|be Belarusian|bg Bulgarian
bm Bambara|bn Bengali|bo Tibetan|br Breton|bs Bosnian|ca Catalan|ce Chechen|ceb Cebuano|chr Cherokee
ckb Central Kurdish|co Corsican|cr Cree|crh Crimean Tatar|cs Czech|cv Chuvash|cy Welsh|da Danish|de German
dv Dhivehi|dz Dzongkha|ee Ewe|el Greek|en English|eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|ff Fulah
fi Finnish|fil Filipino|fo Faroese|fr French|fy Western Frisian|ga Irish|gd Scottish Gaelic|gl Galician|gn Guarani
grc Ancient Greek|gsw Swiss German|gu Gujarati|ha Hausa|haw Hawaiian|he Hebrew|hi Hindi|hr Croatian
ht Haitian Creole|hu Hungarian|hy Armenian|id Indonesian|ig Igbo|is Icelandic|it Italian|iu Inuktitut|ja Japanese
jv Javanese|ka Georgian|kk Kazakh|kl Greenlandic|km Khmer|kn Kannada|ko Korean|ku Kurdish|ky Kyrgyz|la Latin
lb Luxembourgish|lg Ganda|ln Lingala|lo Lao|lt Lithuanian|lv Latvian|mg Malagasy|mi Māori|mk Macedonian
ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese|my Burmese|nb Norwegian Bokmål|nds Low German|ne Nepali
nl Dutch|nn Norwegian Nynorsk|no Norwegian|nso Northern Sotho|ny Chichewa|oc Occitan|om Oromo|or Odia|os Ossetian
pa Punjabi|pl Polish|ps Pashto|pt Portuguese|qu Quechua|rm Romansh|rn Rundi|ro Romanian|ru Russian|rue Rusyn
rw Kinyarwanda|sa Sanskrit|sah Yakut|sc Sardinian|sd Sindhi|se Northern Sami|si Sinhala|sk Slovak|sl Slovenian
sm Samoan|sn Shona|so Somali|sq Albanian|sr Serbian|ss Swati|st Southern Sotho|su Sundanese|sv Swedish|sw Swahili
szl Silesian|ta Tamil|te Telugu|tg Tajik|th Thai|ti Tigrinya|tk Turkmen|tl Tagalog|tn Tswana|to Tongan|tr Turkish
ts Tsonga|tt Tatar|udm Udmurt|ug Uyghur|uk Ukrainian|ur Urdu|uz Uzbek|ve Venda|vec Venetian|vi Vietnamese|wa Walloon
wo Wolof|xh Xhosa|yi Yiddish|yo Yoruba|yue Cantonese|zgh Tamazight|zh Chinese|zu Zulu
"""
NAMES = dict(entry.split(" ", 1) for line in _NAMES.split("\n") if line for entry in line.split("|"))


def language_name(code: str) -> str:
    """The name, with what follows the language in the code: "pt-BR" is Portuguese (BR). The code itself, if unknown."""
    language, _, more = normalize_code(code).partition("-")
    if language not in NAMES:
        return code
    return f"{NAMES[language]} ({more.upper() if len(more) == 2 else more.title()})" if more else NAMES[language]


def normalize_code(code: str) -> str:
    """A code as it is compared: en_US and EN-us are one."""
    return code.strip().replace("_", "-").casefold()

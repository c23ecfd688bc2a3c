// Example sentences for models without examples of their own, by language.
const SENTENCES = {
  de: ["Wo ist der Bahnhof?", "Sie haben den Tee nicht getrunken, weil er zu kalt war."],
  en: ["Where is the station?", "They didn't drink the tea because it was too cold.",
    "The animal didn't cross the street because it was too tired."],
  es: ["¿Dónde está la estación?", "No bebieron el té porque estaba demasiado frío."],
  fr: ["Où est la gare ?", "Ils n'ont pas bu le thé parce qu'il était trop froid."],
  it: ["Dov'è la stazione?", "Non hanno bevuto il tè perché era troppo freddo."],
};

const examplesOf = ({ examples, source }) => examples ?? SENTENCES[source] ?? [];

export { examplesOf };

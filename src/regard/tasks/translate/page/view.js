// The views of translation. The first one is loaded at once, the other one when it is first opened.
import { translateView } from "./translate.js";

const views = {
  translate: { title: "Translate", load: async () => translateView },
  inside: { title: "Look inside", load: async () => (await import("./inside.js")).insideView },
};

export { views };

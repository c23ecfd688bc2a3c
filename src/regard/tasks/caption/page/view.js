// The view of captions: loaded when it is first opened.
const views = {
  caption: { title: "Caption", load: async () => (await import("./caption.js")).captionView },
};

export { views };

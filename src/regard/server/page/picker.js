// A place to choose a picture: by a button, by dropping a file on it, or by pasting. The picture becomes a data URL.
import { html } from "./common/draw.js";

const MOST_SIDE = 1024; // pixels; larger pictures are made smaller before they are sent
const MOST_BYTES = 2_500_000; // base64 makes a third more of it

const asDataUrl = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(new Error("the file cannot be read"));
  reader.readAsDataURL(blob);
});

// A file as { url, isShown }: a data URL, and whether the browser can show it. A file that it cannot read as a picture is
// left as it is: the server says what is wrong.
async function readPicture(file) {
  let bitmap = null;
  try { bitmap = await createImageBitmap(file); } catch { /* not a picture for the browser */ }
  const scale = bitmap ? Math.min(1, MOST_SIDE / Math.max(bitmap.width, bitmap.height)) : 1;
  if (!bitmap || (scale === 1 && file.size <= MOST_BYTES)) {
    if (file.size > MOST_BYTES) throw new Error("the file is too large and not a picture that the browser can read");
    return { url: await asDataUrl(file), isShown: Boolean(bitmap) };
  }
  const canvas = html("canvas", {});
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(scale * side)));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff"; // JPEG has no transparency
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return { url: canvas.toDataURL("image/jpeg", 0.92), isShown: true };
}

// `onPick(url)` is called with a chosen picture, `onError(message)` if a file cannot be read.
function pickerView({ label, onPick, onError }) {
  const input = html("input", { type: "file", class: "unseen", accept: "image/*", tabindex: -1, "aria-label": label });
  const button = html("button", { type: "button", class: "quiet" }, "Choose a picture");
  const image = html("img", { class: "picked", alt: "the chosen picture", hidden: true });
  const hint = html("p", { class: "placeholder" }, "Drop a picture here, or paste one");
  const node = html("div", { class: "picker" }, image, hint, html("p", {}, button), input);

  async function take(file) {
    if (!file) return;
    try {
      const { url, isShown } = await readPicture(file);
      if (isShown) image.src = url;
      [image.hidden, hint.hidden] = [!isShown, isShown];
      hint.textContent = file.name;
      button.textContent = "Choose another picture";
      onPick(url);
    } catch (error) {
      onError(error.message);
    }
  }
  const pictureIn = (data) => Array.from(data?.files ?? []).find((file) => file.type.startsWith("image/"));
  const over = (isOver) => (event) => {
    event.preventDefault();
    node.classList.toggle("over", isOver);
  };
  function paste(event) {
    const file = pictureIn(event.clipboardData);
    if (file) {
      event.preventDefault();
      take(file);
    }
  }
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => { take(input.files[0]); input.value = ""; });
  node.addEventListener("dragover", over(true));
  node.addEventListener("dragleave", over(false));
  node.addEventListener("drop", (event) => { over(false)(event); take(event.dataTransfer?.files[0]); });
  const open = () => document.addEventListener("paste", paste);
  const close = () => document.removeEventListener("paste", paste);
  return { node, button, open, close };
}

export { pickerView };

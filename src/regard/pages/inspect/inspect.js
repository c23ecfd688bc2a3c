// The page of `regard inspect` for a translation.
import { sign } from "../common/frame.js";
import { inspectionView } from "./inspection.js";

const data = JSON.parse(document.getElementById("data").textContent);
sign(data);
document.getElementById("view").replaceChildren(...inspectionView(data).nodes);

// Every "take along" button that the server cannot answer: a picture as PNG or SVG, and the link to the view.
// The buttons are plain HTML with data-take="png|svg|link"; this is loaded once and listens for all of them.

const INK = "#16202B", PAPER = "#FFFFFF";

// A copy of a figure's data or layout for a white page: what is written in the theme's text colour is written in ink.
function onPaper(value, theme) {
  if (value === theme) return INK;
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((item) => onPaper(item, theme));
  if (value?.constructor !== Object) return value; // numbers, typed arrays, what Plotly put there
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, onPaper(item, theme)]));
}

// Plotly's own camera makes the file, out of `data`, `layout` and its options as they are at that moment. It is out of
// sight (style.py): PNG and SVG under the picture are its buttons.
const CAMERA = '.modebar-btn[data-title^="Download plot"]';

function picture(figure, take) {
  const chart = figure?.querySelector(".js-plotly-plot"), camera = chart?.querySelector(CAMERA);
  if (!camera) return;
  const { data, layout, _context: context } = chart, options = context.toImageButtonOptions;
  const theme = chart._fullLayout.font.color;
  try {
    chart.data = onPaper(data, theme);
    chart.layout = { ...onPaper(layout, theme), paper_bgcolor: PAPER };
    context.toImageButtonOptions = { ...options, format: take, scale: take === "png" ? 2 : 1 };
    camera.click();
  } finally {
    Object.assign(chart, { data, layout });
    context.toImageButtonOptions = options;
  }
}

// Without a secure context (the app on a class's own network) there is no clipboard API, but the old way works.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const box = document.createElement("textarea");
    box.value = text;
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  }
}

async function link(button) {
  const address = window.location.href;
  if (!(await copied(address))) return void window.prompt("This browser does not let a page copy. The link:", address);
  const label = button.textContent;
  button.textContent = button.dataset.done;
  setTimeout(() => (button.textContent = label), 2500);
}

export default function () {
  if (document.tinputListens) return;
  document.tinputListens = true;
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-take]");
    if (button?.dataset.take === "link") link(button);
    else if (button) picture(document.querySelector(`.st-key-figure-${CSS.escape(button.dataset.name)}`), button.dataset.take);
  });
}

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

// Plotly's own camera draws the figure, out of `data`, `layout` and its options as they are at that moment. It is out
// of sight (style.py): PNG and SVG under the picture are its buttons. It always makes an SVG, under a name of its own,
// and what it would save is caught: the page's web font is not in it, and a program without that font would set wider
// letters into the places that Plotly measured with it. (A PNG is drawn from an SVG, which sees no font of the page.)
const CAMERA = '.modebar-btn[data-title^="Download plot"]';
const caught = new Map(); // a name of the camera's -> what is done with its SVG
let pictures = 0;

function picture(figure, take) {
  const chart = figure?.querySelector(".js-plotly-plot"), camera = chart?.querySelector(CAMERA);
  if (!camera) return;
  const { data, layout, _context: context } = chart, options = context.toImageButtonOptions;
  const theme = chart._fullLayout.font.color, name = `tinput-picture-${++pictures}`;
  // What was drawn is said by the browser, in its own list; what went wrong is still said by Plotly, over the picture.
  const quiet = (still) => (context.displayNotifier = !still);
  caught.set(`${name}.svg`, async (drawn) => {
    quiet(true);
    setTimeout(() => quiet(false));
    const text = await drawn, svg = withFonts(text, await fonts(text));
    const file = take === "svg" ? new Blob([svg], { type: "image/svg+xml" }) : await pixels(svg, options.scale);
    save(file, `${options.filename}.${take}`);
  });
  try {
    quiet(true);
    chart.data = onPaper(data, theme);
    chart.layout = { ...onPaper(layout, theme), paper_bgcolor: PAPER };
    context.toImageButtonOptions = { filename: name, format: "svg" };
    camera.click();
  } finally {
    Object.assign(chart, { data, layout });
    context.toImageButtonOptions = options;
    quiet(false);
  }
}

function catchPicture(event) {
  const made = caught.get(event.target.download);
  if (!made) return;
  event.preventDefault();
  caught.delete(event.target.download);
  made(fetch(event.target.href).then((answer) => answer.text())); // at once: Plotly takes the address back
}

function save(file, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 40_000); // a slow disk
}

async function pixels(svg, scale) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(image.width * scale);
  canvas.height = Math.round(image.height * scale);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

// --- the page's fonts, as data --------------------------------------------------------------------------------------

const withFonts = (svg, faces) => svg.replace(">", () => `><style>${faces}</style>`); // the end of its first tag

// The @font-face rules of the page for the families that an SVG names, each with its file inside; "" without any.
async function fonts(svg) {
  const rules = [...document.styleSheets].flatMap(faces).filter(({ style }) => {
    return svg.includes(family(style)) && (style.fontStyle !== "italic" || svg.includes("italic"));
  });
  return (await Promise.all(rules.map(inside))).join("");
}

const family = (style) => style.getPropertyValue("font-family").replace(/^["']|["']$/g, "");

function faces(sheet) {
  try {
    return [...sheet.cssRules].filter((rule) => rule instanceof CSSFontFaceRule);
  } catch {
    return []; // a sheet from elsewhere, which a page may not read
  }
}

const files = new Map(); // a font's address -> a promise of its data: URL

async function inside({ style, parentStyleSheet: sheet }) {
  const written = style.getPropertyValue("src").match(/url\(["']?([^"')]+)/)?.[1];
  if (!written) return "";
  const address = new URL(written, sheet.href ?? document.baseURI).href;
  if (!files.has(address)) files.set(address, dataOf(address));
  const rest = ["font-weight", "font-style", "unicode-range"].filter((name) => style.getPropertyValue(name));
  const lines = rest.map((name) => `${name}:${style.getPropertyValue(name)};`).join("");
  try {
    return `@font-face{font-family:"${family(style)}";${lines}src:url(${await files.get(address)});}`;
  } catch {
    files.delete(address); // the picture goes without it, and the next one asks again
    return "";
  }
}

async function dataOf(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${answer.status} for ${address}`);
  const blob = await answer.blob();
  return new Promise((done, failed) => {
    const reader = Object.assign(new FileReader(), { onload: () => done(reader.result), onerror: failed });
    reader.readAsDataURL(blob);
  });
}

// --- the link -------------------------------------------------------------------------------------------------------

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
  document.addEventListener("click", catchPicture, true);
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-take]");
    if (button?.dataset.take === "link") link(button);
    else if (button) picture(document.querySelector(`.st-key-figure-${CSS.escape(button.dataset.name)}`), button.dataset.take);
  });
}

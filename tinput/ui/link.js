// Hovering a part of the text marks its bytes everywhere: in the rows of tokens, and in every linked figure of the page.
// Figures say in their layout's meta where each part begins (`edges`), which is the first (`first`), and whether parts
// lie along both axes (`square`). What cannot be marked is left as it is.
export default function () {
  let now = null;

  function figures() {
    return [...document.querySelectorAll(".js-plotly-plot")].filter((plot) => plot._fullLayout?.meta?.edges);
  }

  function clear() {
    document.querySelectorAll(".lit").forEach((chip) => chip.classList.remove("lit"));
    document.querySelectorAll(".linked-mark").forEach((mark) => mark.remove());
  }

  function band(plot, subplot, axis, part, edges) {
    const along = axis === "y" ? subplot.yaxis : subplot.xaxis;
    const ends = [part, part + 1].map((k) => Math.min(Math.max(along.l2p(edges[k]), 0), along._length));
    const size = Math.abs(ends[1] - ends[0]);
    if (!size) return;
    const at = along._offset + Math.min(...ends);
    const across = axis === "y" ? subplot.xaxis : subplot.yaxis;
    const mark = document.createElement("div");
    mark.className = "linked-mark";
    const [left, top, width, height] =
      axis === "y" ? [across._offset, at, across._length, size] : [at, across._offset, size, across._length];
    Object.assign(mark.style, {
      position: "absolute", pointerEvents: "none", outline: "2px solid #E69F00", // no fill: colours are values
      left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px`,
    });
    const layers = plot.querySelectorAll(".svg-container > .main-svg");
    layers[layers.length - 1].before(mark); // below the hover box
  }

  function show(parts) {
    const key = parts.join();
    if (key === now) return;
    now = key;
    clear();
    for (const part of parts) {
      document.querySelectorAll(`[data-part="${part}"]`).forEach((chip) => chip.classList.add("lit"));
    }
    for (const plot of figures()) {
      const { edges, first, square } = plot._fullLayout.meta;
      for (const subplot of Object.values(plot._fullLayout._plots)) {
        if (subplot.xaxis.overlaying || subplot.yaxis.overlaying) continue;
        const [row, column] = [parts[0] - first, parts[parts.length - 1] - first];
        if (row >= 0 && row < edges.length - 1) band(plot, subplot, "y", row, edges);
        if (square && column >= 0 && column < edges.length - 1) band(plot, subplot, "x", column, edges);
      }
    }
  }

  function partAt(plot, value) {
    const { edges, first } = plot._fullLayout.meta;
    const found = edges.findIndex((edge) => edge > value);
    return first + (found < 0 ? edges.length - 2 : Math.max(0, found - 1));
  }

  function listen(plot) {
    if (!plot._ev || plot._ev.linked || !plot._fullLayout?.meta?.edges) return; // a figure that was drawn anew has none
    plot._ev.linked = true;
    plot.on("plotly_hover", (event) => {
      const row = partAt(plot, event.yvals[0]);
      show(plot._fullLayout.meta.square ? [row, partAt(plot, event.xvals[0])] : [row]);
    });
    plot.on("plotly_unhover", () => show([]));
  }

  function over(event) {
    try {
      const plot = event.target.closest?.(".js-plotly-plot");
      if (plot) return listen(plot);
      const chip = event.target.closest?.("[data-part]");
      show(chip ? [Number(chip.dataset.part)] : []);
    } catch {
      clear();
    }
  }

  document.addEventListener("mouseover", over);
  return () => {
    document.removeEventListener("mouseover", over);
    clear();
  };
}

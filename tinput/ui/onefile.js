// In a page that was taken along: draws its figures, and answers the buttons under them.
for (const place of document.querySelectorAll("[data-figure]")) {
  const { data, layout } = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  Plotly.newPlot(place, data, { ...layout, paper_bgcolor: "#FFFFFF" }, {
    responsive: true, displaylogo: false, displayModeBar: true, modeBarButtons: [["zoom2d", "resetScale2d"]],
  });
}
document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-take]");
  if (!button) return;
  const { take, name } = button.dataset;
  const figure = document.querySelector(`[data-figure="${CSS.escape(`figure-${name}`)}"]`);
  Plotly.downloadImage(figure, { format: take, filename: `tinput-${name}`, scale: take === "png" ? 2 : 1 });
});

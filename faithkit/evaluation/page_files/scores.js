// The metrics at the top of the page of answers.
function showMetrics() {
  const box = document.getElementById("metrics");
  const scores = read("scores");
  const main = scores.filter(([name]) => !name.includes("/"));
  const others = scores.filter(([name]) => name.includes("/"));
  const table = (metrics) => {
    const body = make("tbody", "");
    for (const [name, value, low, high] of metrics) {
      const cell = make("td", "", make("b", "", value.toFixed(3)));
      if (low !== null && high !== null) cell.append(make("span", "interval", ` ${low.toFixed(3)} to ${high.toFixed(3)}`));
      body.append(make("tr", "", addText(make("th", ""), spell(name)), cell));
      body.lastChild.firstChild.scope = "row";
    }
    return make("table", "", body);
  };
  if (main.length) box.append(table(main));
  if (others.length) box.append(make("details", "", make("summary", "", "By task, generator and type"), table(others)));
}
showMetrics();

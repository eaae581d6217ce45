// The report of several runs: which tables there are, and what their cells mean.

const [report] = read("report");
const box = (name) => document.getElementById(name);
const MEANINGS = {
  macro_f1: "mean F1 of both classes", f1: "F1 of the hallucinated class", accuracy: "share of correct rows",
  auroc: "share of pairs in the right order by score", average_precision: "area under precision by recall",
  ece: "expected calibration error; lower is better", brier: "mean squared error of the score; lower is better",
  predicted_rate: "share predicted as hallucinated", char_f1: "F1 of characters",
  response_by_spans_f1: "F1 of responses, called by their spans",
};

function showRuns() {
  const heads = [["run", ""], ["script", ""], ["state", ""], ["began", ""], ...report.settings.map((key) => [key, "a setting that differs"])];
  const filter = box("run-filter");
  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = report.runs.filter((row) => words.every((word) => row.some((cell) => String(cell ?? "").toLowerCase().includes(word))));
    table(box("runs-table"), heads, rows);
    box("run-count").textContent = `${rows.length.toLocaleString("en")} of ${report.runs.length.toLocaleString("en")} runs`;
  };
  filter.addEventListener("input", show);
  show();
}

function showSweeps() {
  for (const { name, keys, monitor, test, rows } of report.sweeps) {
    const heads = [["place", ""], ...keys.map((key) => [key, "a setting that varies"]), [monitor, "at its best validation; ranks"], [test, "ranks nothing"], ["runs", "their mean, where there are several"], ["names", "of their folders"]];
    table(box(`${name}-ranking`), heads, rows);
  }
}

function showMetrics() {
  if (!report.metrics.length) return;
  const show = (place) => {
    const { names, rows } = report.metrics[place];
    table(box("values-table"), [["run", ""], ...names.map((name) => [spell(name), MEANINGS[name] ?? ""])], rows, { sort: 1, way: -1 });
  };
  chooser("values-part", report.metrics.map((part) => part.name), show);
  show(0);
}

const short = (difference) => (difference ? difference.slice(0, 3) : null);

function showPairs() {
  if (!report.pairs.length) return;
  const names = report.tested;
  let [set, metric] = [0, 0];
  const show = () => {
    const { rows, name } = report.pairs[set];
    const tested = names[metric];
    const heads = [
      ["first", ""], ["second", ""], [`${spell(tested)}: first minus second`, "with its 95% interval"], ["p", "bootstrap over groups"], ["p (Holm)", "corrected for all pairs of this report"],
      ["only first right", "rows"], ["only second right", "rows"], ["McNemar's p", "exact; assumes independent rows"], ["p (Holm) ", "corrected for all pairs of this report"], ["rows", ""], ["groups", ""],
    ];
    const cells = rows.map((row) => {
      const difference = row.differences[tested];
      return [row.first, row.second, short(difference), pValue(difference?.[3]), pValue(difference?.[4]), ...(row.mcnemar ? [whole(row.mcnemar[0]), whole(row.mcnemar[1]), pValue(row.mcnemar[2]), pValue(row.mcnemar[3])] : [null, null, null, null]), whole(row.rows), whole(row.groups)];
    });
    const pick = typeof choose === "function" ? ([first, second]) => look(name, first, second) : null;
    table(box("pairs-table"), heads, cells, { pick, sort: 3, way: 1 });
  };
  chooser("pairs-set", report.pairs.map((one) => one.name), (place) => { set = place; show(); });
  chooser("pairs-metric", names.map(spell), (place) => { metric = place; show(); });
  show();
}

// Opens the answers at two runs of a test set.
function look(name, first, second) {
  const set = sets.findIndex((one) => one.name === name);
  if (set < 0) return;
  const { systems } = sets[set];
  choose(set, systems.indexOf(first), systems.indexOf(second));
  box("browser").scrollIntoView();
}

function showSlices() {
  if (!report.slices.length) return;
  let [set, metric] = [0, 0];
  const show = () => {
    const { systems, rows } = report.slices[set];
    const name = report.sliced[metric];
    const heads = [["of", ""], ["value", ""], ["rows", ""], ["gold share", "of hallucinated rows"], ...systems.map((system) => [system, spell(name)])];
    table(box("slices-table"), heads, rows.map(([field, value, count, share, metrics]) => [field, value, whole(count), { text: percent(share), by: share }, ...metrics.map((own) => own[metric])]));
  };
  chooser("slices-set", report.slices.map((one) => one.name), (place) => { set = place; show(); });
  chooser("slices-metric", report.sliced.map(spell), (place) => { metric = place; show(); });
  show();
}

function confusionTable(counts) {
  const total = (row) => row.reduce((sum, count) => sum + count, 0);
  const line = (name, row) => make("tr", "", make("th", "", name), ...row.map((count) => {
    const cell = make("td", "number", count.toLocaleString("en"));
    if (total(row)) cell.append(make("span", "interval", ` ${percent(count / total(row))}`));
    return cell;
  }));
  const unparsed = counts.some((row) => row[2]);
  const shown = counts.map((row) => (unparsed ? row : row.slice(0, 2)));
  const heads = ["called faithful", "called hallucinated", "unparsed"].slice(0, unparsed ? 3 : 2);
  return make("table", "", make("thead", "", make("tr", "", make("th", "", ""), ...heads.map((head) => make("th", "number", head)))), make("tbody", "", line("gold faithful", shown[0]), line("gold hallucinated", shown[1])));
}

// The two runs that the answers are shown of: their confusion matrices, and every metric's difference.
function showChosen() {
  const { name, systems } = sets[state.set];
  const chosen = (isPair() ? [state.a, state.b] : [state.a]).map((place) => systems[place]);
  const confusions = report.confusions[name] ?? {};
  box("confusions").replaceChildren(...chosen.filter((system) => confusions[system]).map((system) => make("div", "wide-box", addText(make("h3", ""), system), confusionTable(confusions[system]))));
  const rows = report.pairs.find((one) => one.name === name)?.rows ?? [];
  const [first, second] = chosen;
  const pair = rows.find((row) => [row.first, row.second].includes(first) && [row.first, row.second].includes(second) && first !== second);
  box("pair-table").replaceChildren();
  box("pair-note").textContent = "";
  if (!pair) return;
  const sign = pair.first === first ? 1 : -1;
  const turned = ([value, low, high]) => (sign > 0 ? [value, low, high] : [-value, -high, -low]);
  table(box("pair-table"), [["metric", ""], ["first minus second", "with its 95% interval"], ["p", ""], ["p (Holm)", "corrected for all pairs of this report"]],
    report.tested.filter((one) => pair.differences[one]).map((one) => [spell(one), turned(pair.differences[one]), pValue(pair.differences[one][3]), pValue(pair.differences[one][4])]));
  if (!pair.mcnemar) return;
  const [alone, other] = sign > 0 ? pair.mcnemar : [pair.mcnemar[1], pair.mcnemar[0]];
  box("pair-note").textContent = `${pair.rows.toLocaleString("en")} rows in ${pair.groups.toLocaleString("en")} groups. Only the first is right on ${alone.toLocaleString("en")} rows, only the second on ${other.toLocaleString("en")}: McNemar's p ${pValue(pair.mcnemar[2]).text}, by Holm ${pValue(pair.mcnemar[3]).text}.`;
}

showSweeps();
showRuns();
showMetrics();
showPairs();
showSlices();
for (const link of document.querySelectorAll("header nav a, a.skip")) {
  link.addEventListener("click", (event) => {
    event.preventDefault(); // what stands behind # is the choice of answers
    const target = document.getElementById(link.getAttribute("href").slice(1));
    target.scrollIntoView();
    target.focus({ preventScroll: true });
  });
}

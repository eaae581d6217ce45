// The form of the service's page: sends context and answer to /v1/check, and shows the marked answer.
const element = (id) => document.getElementById(id);
const [settings] = read("settings");
let lastRequest = 0, shown = null;

function setText(id, text) {
  element(id).textContent = text;
}

// Spans count characters; JavaScript's strings count UTF-16 units.
function markAnswer(text, spans) {
  const characters = Array.from(text), paragraph = element("marked");
  paragraph.replaceChildren();
  let last = 0;
  for (const span of spans) {
    addText(paragraph, characters.slice(last, span.start).join(""));
    const mark = addText(make("mark", "called"), characters.slice(span.start, span.end).join(""));
    const near = span.closest_passage ? `\nclosest in the context: ${span.closest_passage.text}` : "\nnothing in the context is close";
    mark.tabIndex = 0;
    mark.dataset.tip = `${spell(span.type)}${span.probability === null ? "" : `, probability ${number(span.probability)}`}${near}`;
    mark.setAttribute("aria-description", mark.dataset.tip);
    paragraph.append(mark);
    last = span.end;
  }
  addText(paragraph, characters.slice(last).join(""));
}

function listSpans(spans) {
  element("spans").replaceChildren(...spans.map((span) => {
    const quote = addText(make("q", ""), span.text);
    const near = span.closest_passage ? addText(make("q", ""), span.closest_passage.text) : "nothing";
    return make("li", "", make("mark", "called", "not supported"), " ", quote, " · closest in the context: ", near);
  }));
  element("spans").hidden = !spans.length;
}

function show(verdict, answer, seconds) {
  shown = verdict;
  const wrong = verdict.label !== "faithful";
  element("label").className = `badge ${wrong ? "wrong" : "right"}`;
  setText("label", verdict.label);
  setText("probability", verdict.probability === null ? "–" : verdict.probability.toFixed(3));
  setText("seconds", `· ${verdict.model} · ${(1000 * seconds).toFixed(0)} ms`);
  element("bar").style.setProperty("width", `${100 * (verdict.probability ?? 0)}%`);
  element("threshold-row").hidden = element("reset").hidden = verdict.threshold === null;
  if (verdict.threshold !== null) {
    element("threshold").value = verdict.threshold;
    setText("threshold-value", verdict.threshold.toFixed(2));
  }
  markAnswer(answer, verdict.spans);
  listSpans(verdict.spans);
  element("result").hidden = false;
  element("problem").hidden = true;
}

function showProblem(text) {
  setText("problem", text);
  element("problem").hidden = false;
  element("result").hidden = true;
}

async function check(threshold = null) {
  const answer = element("answer").value, request = ++lastRequest;
  const passages = element("context").value.split(/\n\s*\n/).filter((text) => text.trim());
  const body = { knowledge: passages, response: answer, model: element("model").value };
  if (element("question").value.trim()) body.question = element("question").value;
  if (threshold !== null) body.threshold = threshold;
  const headers = { "Content-Type": "application/json" };
  if (element("key").value) headers.Authorization = `Bearer ${element("key").value}`;
  element("check").disabled = true;
  const began = performance.now();
  try {
    const reply = await fetch("/v1/check", { method: "POST", headers, body: JSON.stringify(body) });
    const verdict = await reply.json();
    if (request !== lastRequest) return;
    if (reply.ok) show(verdict, answer, (performance.now() - began) / 1000);
    else showProblem(`${verdict.error.message}: ${verdict.error.help}`);
  } catch {
    if (request === lastRequest) showProblem("the service does not answer: is it still running?");
  } finally {
    element("check").disabled = false;
  }
}

function fill(example) {
  for (const name of ["context", "question", "answer"]) element(name).value = example[name];
  check();
}

for (const name of settings.models) element("model").append(new Option(name));
for (const example of settings.examples) {
  const button = make("button", "", example.name);
  button.type = "button";
  button.addEventListener("click", () => fill(example));
  element("examples").append(button);
}
element("key-row").hidden = !settings.has_keys;
element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  check();
});
element("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element("form").requestSubmit();
});
let timer = 0;
element("threshold").addEventListener("input", () => {
  setText("threshold-value", Number(element("threshold").value).toFixed(2));
  clearTimeout(timer);
  timer = setTimeout(() => check(Number(element("threshold").value)), 120);
});
element("reset").addEventListener("click", () => check());

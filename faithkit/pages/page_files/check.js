// The form of the service's page: sends context and answer to /v1/check, and shows the marked answer.
const element = (id) => document.getElementById(id);
const [settings] = read("settings");
let lastRequest = 0, shown = null; // the request whose verdict is shown

function setText(id, text) {
  element(id).textContent = text;
}

// The type of a span, as far as the model gives it.
const typeOf = (span) => [span.relation, span.element].filter(Boolean).join(", ").replaceAll("_", " ") || "not supported";

// Spans count characters; JavaScript's strings count UTF-16 units.
function markAnswer(text, spans) {
  const characters = Array.from(text), paragraph = element("marked");
  paragraph.replaceChildren();
  let last = 0;
  spans.forEach((span, place) => {
    addText(paragraph, characters.slice(last, span.start).join(""));
    const mark = addText(make("mark", "called"), characters.slice(span.start, span.end).join(""));
    const near = span.evidence.text ? `${span.evidence.reason}: ${span.evidence.text}` : span.evidence.reason;
    mark.tabIndex = 0;
    mark.dataset.tip = `${typeOf(span)}${span.probability === null ? "" : `, probability ${number(span.probability)}`}\n${near}`;
    mark.dataset.spans = place;
    mark.setAttribute("aria-description", mark.dataset.tip.replaceAll("\n", "; "));
    paragraph.append(mark);
    last = span.end;
  });
  addText(paragraph, characters.slice(last).join(""));
}

function listSpans(spans, passages) {
  element("spans").replaceChildren(...spans.map((span, place) => {
    const line = make("li", "", make("mark", "called", typeOf(span)), " ", addText(make("q", ""), span.text));
    const { id, text, reason } = span.evidence;
    const where = text && passages.length > 1 ? ` in passage ${Number(id) + 1}` : "";
    line.append(" · ", addText(make("b", ""), reason), where);
    if (text) line.append(": ", addText(make("q", ""), text));
    line.dataset.span = place;
    return line;
  }));
  element("spans").hidden = !spans.length;
}

function showVerdict(verdict, body, seconds) {
  element("label").className = `badge ${{ faithful: "right", unsure: "unsure" }[verdict.verdict] ?? "wrong"}`;
  setText("label", verdict.verdict);
  setText("probability", verdict.probability === null ? "–" : verdict.probability.toFixed(3));
  const language = verdict.language ? ` · the model does not read this language: ${verdict.language}` : "";
  setText("seconds", `· ${verdict.model} · ${(1000 * seconds).toFixed(0)} ms${language}`);
  element("bar").style.setProperty("width", `${100 * (verdict.probability ?? 0)}%`);
  element("threshold-row").hidden = element("reset").hidden = verdict.threshold === null;
  if (!("threshold" in body) && verdict.threshold !== null) { // else the reader is moving it
    element("threshold").value = verdict.threshold;
    setText("threshold-value", verdict.threshold.toFixed(2));
  }
  markAnswer(body.response, verdict.spans);
  listSpans(verdict.spans, body.knowledge);
  element("result").hidden = false;
  element("problem").hidden = true;
}

function showProblem(text, body) {
  setText("problem", text);
  element("problem").hidden = false;
  element("result").hidden = !("threshold" in body); // else its slider would lose the focus
}

// Sends a request, and shows its verdict unless another was sent since; reports whether it did.
async function send(body) {
  const request = ++lastRequest, began = performance.now();
  const headers = { "Content-Type": "application/json" };
  if (element("key").value) headers.Authorization = `Bearer ${element("key").value}`;
  setText("check", "Checking…");
  let problem = "the service does not answer: is it still running?";
  try {
    const reply = await fetch("/v1/check", { method: "POST", headers, body: JSON.stringify(body) });
    const verdict = await reply.json();
    if (request !== lastRequest) return false;
    if (reply.ok) {
      shown = body;
      showVerdict(verdict, body, (performance.now() - began) / 1000);
      return true;
    }
    problem = `${verdict.error.message}: ${verdict.error.help}`;
  } catch {
    // the problem above
  } finally {
    if (request === lastRequest) setText("check", "Check");
  }
  if (request === lastRequest) showProblem(problem, body);
  return false;
}

async function check() {
  const passages = element("context").value.split(/\n\s*\n/).filter((text) => text.trim());
  const body = { knowledge: passages, response: element("answer").value, model: element("model").value };
  if (element("question").value.trim()) body.question = element("question").value;
  const empty = ["context", "answer"].find((id) => !element(id).value.trim());
  if (empty) {
    lastRequest += 1; // the verdict of an earlier request is of other texts
    setText("check", "Check");
    showProblem(`The ${empty} is empty.`, body);
    element(empty).focus();
    return;
  }
  if (await send(body)) element("result").focus();
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
  timer = setTimeout(() => send({ ...shown, threshold: Number(element("threshold").value) }), 120);
});
element("reset").addEventListener("click", () => {
  clearTimeout(timer);
  const { threshold, ...body } = shown;
  send(body);
});

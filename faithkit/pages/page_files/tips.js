// The tip beside a mark, on hover and on keyboard focus; Escape closes it.
function showTip(mark) {
  const tip = document.getElementById("tip");
  tip.replaceChildren();
  addText(tip, mark.dataset.tip);
  tip.hidden = false;
  const [first] = mark.getClientRects();
  const left = Math.min(first.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const above = first.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${(above > 0 ? above : first.bottom + 6) + scrollY}px`;
}

function light(article, names) {
  for (const element of article.querySelectorAll("[data-spans], [data-span]")) {
    const own = (element.dataset.spans ?? element.dataset.span).split(" ");
    element.classList.toggle("lit", names.some((name) => own.includes(name)));
  }
}

function point(event) {
  const element = event.target.closest?.("[data-spans], [data-span]");
  document.getElementById("tip").hidden = true;
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  if (!element) return;
  if (element.dataset.tip) showTip(element);
  light(element.closest("article"), (element.dataset.spans ?? element.dataset.span).split(" "));
}

document.addEventListener("mouseover", point);
document.addEventListener("focusin", point);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.getElementById("tip").hidden = true;
});

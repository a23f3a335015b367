/* What is seen of the page in the frame, as JSON in an element of its own: see browser.measured. */
const frame = document.querySelector("iframe");
const LEAST = 4.5; /* contrast of texts, as WCAG 2 asks for (AA) */

const parts = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
const isRect = (e) => e?.tagName === "rect";

function luminance([r, g, b]) {
  const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

/* One colour over another, by its own alpha and a further opacity. */
function over(colour, below, opacity = 1) {
  const alpha = (colour[3] ?? 1) * opacity;
  return [0, 1, 2].map((i) => colour[i] * alpha + below[i] * (1 - alpha));
}

function behind(element, view) {
  if (!element) return [255, 255, 255];
  const own = parts(view.getComputedStyle(element).backgroundColor);
  return (own[3] ?? 1) === 1 ? own : over(own, behind(element.parentElement, view));
}

function ratio(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

/* Pairs of texts of a drawing that lie upon each other by more than a pixel and a half. */
function overlaps(texts) {
  const boxes = texts.map((e) => [e, e.getBoundingClientRect()]).sort(([, a], [, b]) => a.left - b.left);
  const found = [];
  boxes.forEach(([one, a], at) => {
    for (let next = at + 1; next < boxes.length && boxes[next][1].left < a.right - 1.5; next++) {
      const [other, b] = boxes[next];
      if (Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) found.push(`${one.textContent} | ${other.textContent}`);
    }
  });
  return found;
}

function measure() {
  const view = frame.contentWindow, page = frame.contentDocument, root = page.documentElement;
  page.head.append(Object.assign(page.createElement("style"), { textContent: "* { transition: none !important; }" }));
  root.dataset.theme = "THEME";
  if (page.body.dataset.mdColorScheme) page.body.dataset.mdColorScheme = "THEME" === "dark" ? "slate" : "default";
  const scope = page.querySelector("article.md-content__inner") ?? page.body;
  const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const texts = [...scope.querySelectorAll("*")].filter((e) => e.checkVisibility({ visibilityProperty: true }) && hasText(e));
  const html = texts.filter((e) => !e.closest("svg") && !["SCRIPT", "STYLE", "OPTION"].includes(e.tagName));
  const owner = (text) => {
    const before = text.previousElementSibling;
    return text.closest("g.block, g.beside")?.querySelector("rect") ?? (isRect(before) ? before : null);
  };
  const drawn = texts.filter((e) => e.tagName === "text");
  const ground = (e) => {
    const rect = e.classList.contains("label") && owner(e), below = behind(e.closest("svg").parentElement, view);
    if (!rect) return below;
    const style = view.getComputedStyle(rect);
    return over(parts(style.fill), below, Number(style.fillOpacity));
  };
  const contrast = (e) =>
    e.tagName === "text"
      ? ratio(parts(view.getComputedStyle(e).fill), ground(e))
      : ratio(over(parts(view.getComputedStyle(e).color), behind(e, view)), behind(e, view));
  const judged = [...html, ...drawn].map((e) => [contrast(e), `${e.tagName} ${e.getAttribute("class")} ${e.textContent.trim().slice(0, 30)}`]);
  const poor = judged.filter(([found, words]) => found < LEAST && !words.startsWith("A headerlink"));
  const labels = [...page.querySelectorAll("svg text.label")].map((text) => [text, owner(text)]).filter(([, rect]) => rect);
  const outside = drawn.filter((text) => {
    const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 2;
  });
  const clipped = labels.filter(([text, rect]) => {
    const inner = text.getBoundingClientRect(), outer = rect.getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1.5;
  });
  const scrolls = ".scroll, .graph, svg, #tip, .cards, iframe, pre, .md-typeset__scrollwrap";
  const wide = [...scope.querySelectorAll("*")].filter((e) => !e.closest(scrolls) && e.getBoundingClientRect().right > view.innerWidth + 1);
  const found = {
    width: view.innerWidth,
    cut: [...page.querySelectorAll(".scroll > table")].filter((e) => e.offsetWidth > e.parentElement.clientWidth + 1).map((e) => e.id),
    overflow: root.scrollWidth - view.innerWidth,
    poor: poor.slice(0, 8),
    outside: outside.slice(0, 8).map((e) => e.textContent),
    overlaps: [...page.querySelectorAll("svg")].flatMap((svg) => overlaps([...svg.querySelectorAll("text")])).slice(0, 8),
    clipped: clipped.slice(0, 8).map(([text]) => text.textContent),
    wide: wide.slice(0, 8).map((e) => `${e.tagName}.${e.className}`),
    rows: page.querySelectorAll("tr[data-step]").length,
    labels: labels.length,
    groups: [...page.querySelectorAll("tr.group")].map((e) => e.textContent),
    texts: html.length,
    shapes: page.querySelectorAll("svg [tabindex]").length,
  };
  const told = document.createElement("pre");
  told.textContent = JSON.stringify(found);
  document.body.append(told);
}

addEventListener("load", () => setTimeout(measure, 200));

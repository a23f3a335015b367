/* What is seen of the page in the frame, as JSON in an element of its own: see browser.measured. */
const frame = document.querySelector("iframe");

function luminance(text) {
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = text.match(/[\d.]+/g).map((v) => linear(Number(v) / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function behind(element, view) {
  for (let at = element; at; at = at.parentElement) {
    const colour = view.getComputedStyle(at).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)" && colour !== "transparent") return colour;
  }
  return "rgb(255, 255, 255)";
}

function measure() {
  const view = frame.contentWindow, page = frame.contentDocument, root = page.documentElement;
  root.dataset.theme = "THEME";
  const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const texts = [...page.querySelectorAll("body *")].filter((e) => e.checkVisibility() && hasText(e));
  const html = texts.filter((e) => !e.closest("svg") && !["SCRIPT", "STYLE", "OPTION"].includes(e.tagName));
  const contrast = (e) => {
    const [high, low] = [luminance(view.getComputedStyle(e).color), luminance(behind(e, view))].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const poor = html.map((e) => [contrast(e), `${e.tagName} ${e.textContent.trim().slice(0, 30)}`]).filter(([ratio]) => ratio < 4.5);
  const owner = (text) => text.closest("g.block, g.beside")?.querySelector("rect");
  const labels = [...page.querySelectorAll("svg text.label")].map((text) => [text, owner(text)]).filter(([, rect]) => rect);
  const clipped = labels.filter(([text, rect]) => {
    const inner = text.getBoundingClientRect(), outer = rect.getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1.5;
  });
  const scrolls = ".scroll, .graph, svg, #tip, .cards, iframe";
  const wide = [...page.querySelectorAll("body *")].filter((e) => !e.closest(scrolls) && e.getBoundingClientRect().right > view.innerWidth + 1);
  const found = {
    width: view.innerWidth,
    overflow: root.scrollWidth - view.innerWidth,
    poor: poor.slice(0, 8),
    clipped: clipped.slice(0, 8).map(([text]) => text.textContent),
    wide: wide.slice(0, 8).map((e) => `${e.tagName}.${e.className}`),
    rows: page.querySelectorAll("tr[data-step]").length,
    labels: labels.length,
    groups: [...page.querySelectorAll("tr.group")].map((e) => e.textContent),
    texts: html.length,
  };
  const told = document.createElement("pre");
  told.textContent = JSON.stringify(found);
  document.body.append(told);
}

addEventListener("load", () => setTimeout(measure, 200));

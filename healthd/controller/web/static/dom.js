// Elements without markup: all text goes through textContent, so no text of the cluster can become an element.

/** An element. Attributes that are null or false are left out; strings among the children become text. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== ""));
  return made;
}

/** A link to a place in this page. Each part is one segment of the address. */
export function place(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

/** Go on when what there is now is on the screen. A hidden page has no pictures. */
export function afterPicture(act) {
  if (document.hidden) act();
  else requestAnimationFrame(() => setTimeout(act));
}

/** Make the children of *parent* those of *items*, in this order, and keep those that have not changed. */
export function keyed(parent, items, keyOf, make) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (!child || child.item !== item) {
      const made = make(item);
      made.dataset.key = key;
      made.item = item;
      if (child) {
        refocus(child, made);
        if (child === at) at = made;
      }
      child = made;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  for (const gone of known.values()) gone.remove();
}

/** Put *made* in the place of *child*. A link that has the focus keeps it. */
function refocus(child, made) {
  const focused = child.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  child.replaceWith(made);
  if (focused !== null) {
    for (const link of made.querySelectorAll("a")) {
      if (link.getAttribute("href") === focused) return link.focus({ preventScroll: true });
    }
  }
}

// The address of the console: `/console/SCREEN/ITEM?filters`. Back and forward work, and every view can be linked to.

import { computed, signal } from "@preact/signals";

export const BASE = "/console/";

interface Address {
  readonly screen: string;
  /** What the screen shows in detail; its parts may contain any character. */
  readonly item: readonly string[];
  readonly query: URLSearchParams;
}

const href = signal(location.pathname + location.search);

addEventListener("popstate", () => {
  href.value = location.pathname + location.search;
});

export const address = computed<Address>(() => {
  const url = new URL(href.value, location.origin);
  const path = url.pathname.startsWith(BASE) ? url.pathname.slice(BASE.length) : "";
  const [screen = "", ...item] = path.split("/").filter((part) => part !== "");
  return { screen, item: item.map(decoded), query: url.searchParams };
});

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function hrefOf(
  screen: string,
  item: readonly string[] = [],
  query: Record<string, string | undefined> = {},
): string {
  const given = Object.entries(query).filter((entry): entry is [string, string] => !!entry[1]);
  const search = given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
  return `${BASE}${[screen, ...item.map(encodeURIComponent)].join("/")}${search}`;
}

export function navigate(to: string, { replace = false } = {}): void {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  href.value = to;
}

/** Changes the filters of the present view. */
export function setQuery(changes: Record<string, string | undefined>): void {
  const { screen, item, query } = address.value;
  navigate(hrefOf(screen, item, { ...Object.fromEntries(query), ...changes }), { replace: true });
}

/** Follows links to the console without loading the page again; everything else is the browser's. */
export function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = (event.target as Element | null)?.closest("a");
  if (!link || link.target !== "" || link.origin !== location.origin || !link.pathname.startsWith(BASE)) return;
  if (link.hasAttribute("download")) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
}

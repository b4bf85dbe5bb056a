// Which types contain themselves. Rust wants a box somewhere in every such circle.

import type { Declaration, Type } from "../../types/type.js";

/** The circle each declaration is in; a field needs a box when its type is in the same one. */
export function circles(declarations: readonly Declaration[]): (from: string, to: string) => boolean {
  const edges = new Map(declarations.map((declaration) => [declaration.name, held(declaration)]));
  const groups = components(edges);
  return (from, to) => groups.get(from) === groups.get(to) && (from !== to || (edges.get(from)?.includes(to) ?? false));
}

/** The named types that lie directly in a value, not behind a list or a map. */
function held(declaration: Declaration): string[] {
  const inside = (type: Type): string[] => {
    if (type.kind === "named") return [type.name];
    if (type.kind === "nullable") return inside(type.of);
    return type.kind === "tuple" && type.exact ? type.items.flatMap(inside) : [];
  };
  switch (declaration.kind) {
    case "object":
      return declaration.fields.flatMap((field) => inside(field.type));
    case "union":
      return declaration.variants.flatMap((variant) => inside(variant.type));
    case "alias":
      return inside(declaration.type);
    case "enum":
      return [];
  }
}

/** Strongly connected components by Tarjan's method, without recursion: their depth is not ours. */
function components(edges: ReadonlyMap<string, readonly string[]>): Map<string, number> {
  const group = new Map<string, number>();
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const open: string[] = [];
  for (const start of edges.keys()) {
    if (index.has(start)) continue;
    const stack: { name: string; next: number }[] = [{ name: start, next: 0 }];
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const { name } = top;
      if (top.next === 0) {
        index.set(name, index.size);
        low.set(name, index.get(name) as number);
        open.push(name);
      }
      const target = edges.get(name)?.[top.next++];
      if (target !== undefined) {
        if (!index.has(target)) stack.push({ name: target, next: 0 });
        else if (!group.has(target)) low.set(name, Math.min(low.get(name) as number, index.get(target) as number));
        continue;
      }
      stack.pop();
      const above = stack.at(-1)?.name;
      if (above !== undefined) low.set(above, Math.min(low.get(above) as number, low.get(name) as number));
      if (low.get(name) !== index.get(name)) continue;
      const id = group.size;
      for (let member = open.pop(); member !== undefined; member = member === name ? undefined : open.pop())
        group.set(member, id);
    }
  }
  return group;
}

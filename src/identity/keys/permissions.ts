// What a key may do (G6). Patterns are tool names in which `*` stands for anything.

export interface KeyRights {
  /** Call these tools. */
  readonly invoke: ToolMatcher;
  /** See these in lists, with their schemas. What may be called may be seen. */
  readonly read: ToolMatcher;
  readonly adminRead: boolean;
  readonly adminWrite: boolean;
  /** Approver groups; when there are any, there is nothing else. */
  readonly approve: readonly string[];
}

export class PermissionInvalid extends Error {
  readonly code = "PERMISSION_INVALID";
  constructor(message: string) {
    super(message);
    this.name = "PermissionInvalid";
  }
}

const FORMS = "invoke(TOOL), read(TOOL), list, admin.read, admin.write, or approve(GROUP) alone";
const MAX_PERMISSIONS = 1_000;

/** INVARIANT: what can approve can do nothing else. */
export function readPermissions(permissions: readonly string[]): KeyRights {
  if (permissions.length > MAX_PERMISSIONS) {
    throw new PermissionInvalid(`a key has at most ${MAX_PERMISSIONS} permissions; use patterns`);
  }
  const invoke: string[] = [];
  const read: string[] = [];
  const approve: string[] = [];
  let [adminRead, adminWrite] = [false, false];
  for (const permission of permissions) {
    const [, verb = "", what = ""] = /^(invoke|read|approve)\(([^()]*)\)$/.exec(permission) ?? [];
    if (verb === "invoke") invoke.push(pattern(what, permission));
    else if (verb === "read") read.push(pattern(what, permission));
    else if (verb === "approve") approve.push(group(what, permission));
    else if (permission === "list") read.push("*");
    else if (permission === "admin.read") adminRead = true;
    else if (permission === "admin.write") adminWrite = adminRead = true;
    else throw new PermissionInvalid(`there is no permission \`${permission}\`; there is ${FORMS}`);
  }
  if (approve.length > 0 && approve.length < permissions.length) {
    throw new PermissionInvalid("a key that approves can do nothing else; make two keys");
  }
  return {
    invoke: new ToolMatcher(invoke),
    read: new ToolMatcher([...invoke, ...read]),
    adminRead,
    adminWrite,
    approve,
  };
}

function pattern(text: string, permission: string): string {
  if (/^[A-Za-z0-9_*./-]{1,256}$/.test(text)) return text;
  throw new PermissionInvalid(`\`${permission}\` names no tool; write a name or a pattern with *`);
}

function group(text: string, permission: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/.test(text)) return text;
  throw new PermissionInvalid(`\`${permission}\` names no group of approvers`);
}

/** Names are looked up; patterns are tried one after the other, by parts and without going back. */
export class ToolMatcher {
  readonly #names = new Set<string>();
  readonly #patterns: readonly (readonly string[])[];
  readonly #all: boolean;

  constructor(patterns: readonly string[]) {
    this.#all = patterns.includes("*");
    const parts: string[][] = [];
    for (const each of new Set(patterns)) {
      if (each.includes("*")) parts.push(each.split("*"));
      else this.#names.add(each);
    }
    this.#patterns = parts;
  }

  has(tool: string): boolean {
    return this.#all || this.#names.has(tool) || this.#patterns.some((parts) => matches(parts, tool));
  }
}

/** `parts` are what stands between the stars: the first at the beginning, the last at the end, the others in order. */
function matches(parts: readonly string[], text: string): boolean {
  const first = parts[0] as string;
  const last = parts.at(-1) as string;
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  const end = text.length - last.length;
  for (const part of parts.slice(1, -1)) {
    const found = text.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

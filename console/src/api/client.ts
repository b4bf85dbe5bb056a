// Calls the operations of the admin API by name, typed by its table.

import type { OperationInput, OperationResult } from "../../../src/admin/operations.js";
import { type OperationName, type OperationRoute, ROUTES } from "../../../src/admin/routes.js";

const PAGE_KEY = "page-key";
/** The second half of a session: without it the cookie alone opens nothing. */
const PAGE_KEY_HEADER = "portcullis-page-key";

export class ApiError extends Error {
  readonly status: number;
  readonly suggestions: readonly string[];

  constructor(status: number, message: string, suggestions: readonly string[] = []) {
    super(message);
    this.status = status;
    this.suggestions = suggestions;
  }
}

/** Called when the session is not valid any more. */
let onSignedOut = (): void => {};

export function whenSignedOut(run: () => void): void {
  onSignedOut = run;
}

export function keepPageKey(key: string | undefined): void {
  if (key === undefined) localStorage.removeItem(PAGE_KEY);
  else localStorage.setItem(PAGE_KEY, key);
}

export function hasPageKey(): boolean {
  return localStorage.getItem(PAGE_KEY) !== null;
}

export function credentialHeaders(): Record<string, string> {
  const key = localStorage.getItem(PAGE_KEY);
  return key === null ? {} : { [PAGE_KEY_HEADER]: key };
}

/** Sends one request and returns its result; throws an `ApiError` that says what to do. */
export async function call<N extends OperationName>(
  name: N,
  input: OperationInput<N>,
  signal?: AbortSignal,
): Promise<OperationResult<N>> {
  const { method, path, roles }: OperationRoute = ROUTES[name];
  const { url, rest } = placed(path, input as Record<string, unknown>);
  const hasBody = method === "POST" || method === "PUT";
  const response = await send(hasBody ? url : `${url}${query(rest)}`, {
    method,
    headers: { ...credentialHeaders(), ...(hasBody ? { "content-type": "application/json" } : {}) },
    cache: "no-store",
    ...(hasBody ? { body: JSON.stringify(rest) } : {}),
    ...(signal ? { signal } : {}),
  });
  if (response.ok) return (await response.json()) as OperationResult<N>;
  if (response.status === 401 && roles !== "anyone") onSignedOut();
  throw await problemOf(response);
}

async function send(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new ApiError(0, "the gateway does not answer: check that it runs and that this machine reaches it");
  }
}

/** Fields named in the path go there; the rest is the query or the body. */
function placed(path: string, input: Record<string, unknown>): { url: string; rest: Record<string, unknown> } {
  const rest = { ...input };
  const url = path.replace(/\{(\w+)\}/g, (_all, field: string) => {
    const value = rest[field];
    delete rest[field];
    return encodeURIComponent(String(value));
  });
  return { url, rest };
}

function query(fields: Record<string, unknown>): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== "");
  return given.length === 0
    ? ""
    : `?${new URLSearchParams(given.map(([key, value]) => [key, String(value)] as [string, string]))}`;
}

async function problemOf(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => undefined);
  const { error } = (body ?? {}) as { error?: { reason?: unknown; suggestions?: unknown } };
  const message =
    typeof error?.reason === "string" ? error.reason : `the gateway answered with HTTP ${response.status}`;
  const suggestions = Array.isArray(error?.suggestions) ? error.suggestions.map(String) : [];
  return new ApiError(response.status, message, suggestions);
}

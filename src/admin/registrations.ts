// Registrations of one application, for keys with `admin.read` or `admin.write`: the HTTP half. What a key may register
// is decided by the implementation of `Registrations`.

import type { IncomingMessage, ServerResponse } from "node:http";
import { Fault, type JsonObject } from "../mcp/index.js";
import { readJson, sendJson } from "./exchange.js";
import { bearerOf } from "./guard.js";

/** The holder of a key with `admin.read`, for the key's own application. */
export interface Registrar {
  readonly app: string;
  /** Id and name of the key, for the record. */
  readonly key: string;
  readonly name: string;
  readonly agent: string;
  readonly mayWrite: boolean;
}

export interface Registrations {
  read(app: string): Promise<JsonObject>;
  put(by: Registrar, server: string, entry: JsonObject, traceId: string): Promise<JsonObject>;
  remove(by: Registrar, server: string, traceId: string): Promise<JsonObject>;
}

export interface RegistrationRoutes {
  readonly registrations: Registrations;
  /** Whose key this is, when it may read registrations. */
  readonly registrarFor: (token: string) => Promise<Registrar | undefined>;
}

interface RegistrationRoute {
  readonly method: "GET" | "PUT" | "DELETE";
  run(routes: RegistrationRoutes, exchange: RegistrationExchange): Promise<void>;
}

interface RegistrationExchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly maxBodyBytes: number;
  /** Throws unless the request carries the operator's credential. */
  checkOperator(): void;
  authenticated(): void;
}

const SERVER = /^\/v1\/registrations\/servers\/([A-Za-z0-9_-]{1,63})$/;

export function registrationRoute(path: string, method: string | undefined): RegistrationRoute | undefined {
  if (path === "/v1/registrations") return { method: "GET", run: read };
  const [, server] = SERVER.exec(path) ?? [];
  if (server === undefined) return undefined;
  return method === "DELETE"
    ? { method, run: (routes, exchange) => remove(server, routes, exchange) }
    : { method: "PUT", run: (routes, exchange) => put(server, routes, exchange) };
}

/** The operator reads those of the application that the query names, a key those of its own. */
async function read({ registrations, registrarFor }: RegistrationRoutes, exchange: RegistrationExchange) {
  const { request, response } = exchange;
  const asked = new URLSearchParams((request.url ?? "").split("?")[1] ?? "").get("app");
  const registrar = await registrarFor(bearerOf(request));
  if (!registrar) exchange.checkOperator();
  exchange.authenticated();
  const app = registrar?.app ?? asked;
  if (app === null) throw new Fault("InvalidParams", "name the application: /v1/registrations?app=NAME");
  if (asked !== null && asked !== app) throw new Fault("ResourceNotFound", "there is no such application");
  sendJson(response, 200, await registrations.read(app));
}

async function put(server: string, routes: RegistrationRoutes, exchange: RegistrationExchange): Promise<void> {
  const by = await writerOf(routes, exchange);
  const entry = await readJson(exchange.request, exchange.maxBodyBytes);
  sendJson(exchange.response, 200, await routes.registrations.put(by, server, entry, exchange.traceId));
}

async function remove(server: string, routes: RegistrationRoutes, exchange: RegistrationExchange): Promise<void> {
  const by = await writerOf(routes, exchange);
  sendJson(exchange.response, 200, await routes.registrations.remove(by, server, exchange.traceId));
}

async function writerOf({ registrarFor }: RegistrationRoutes, exchange: RegistrationExchange): Promise<Registrar> {
  const registrar = await registrarFor(bearerOf(exchange.request));
  if (!registrar) exchange.checkOperator();
  exchange.authenticated();
  if (registrar?.mayWrite) return registrar;
  throw new Fault("AuthorizationError", "registering needs a key with admin.write", {
    rule: "registration.permission",
    suggestions: ["The operator changes servers with `portcullis app set` and creates keys with `portcullis key add`"],
  });
}

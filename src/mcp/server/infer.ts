// The type of a value from the JSON Schema written beside it, for the keywords that people use by hand.
// What it does not follow becomes `JsonValue`: too wide, never wrong.

import type { JsonObject, JsonValue } from "../index.js";

export type FromSchema<S, Root = S> = S extends boolean
  ? S extends false
    ? never
    : JsonValue
  : S extends { readonly $ref: infer R extends string }
    ? FromSchema<Target<Root, R>, Root>
    : S extends { readonly const: infer C }
      ? C
      : S extends { readonly enum: readonly (infer E)[] }
        ? E
        : S extends { readonly anyOf: infer B extends readonly unknown[] }
          ? OneOf<B, Root> & Beside<S, "anyOf", Root>
          : S extends { readonly oneOf: infer B extends readonly unknown[] }
            ? OneOf<B, Root> & Beside<S, "oneOf", Root>
            : S extends { readonly allOf: infer B extends readonly unknown[] }
              ? AllOf<B, Root> & Beside<S, "allOf", Root>
              : S extends { readonly type: infer T }
                ? T extends readonly (infer Each)[]
                  ? OfType<Each, S, Root>
                  : OfType<T, S, Root>
                : S extends { readonly properties: object }
                  ? ObjectOf<S, Root>
                  : JsonValue;

type OfType<T, S, Root> = T extends "string"
  ? string
  : T extends "number" | "integer"
    ? number
    : T extends "boolean"
      ? boolean
      : T extends "null"
        ? null
        : T extends "array"
          ? ArrayOf<S, Root>
          : T extends "object"
            ? ObjectOf<S, Root>
            : JsonValue;

type ArrayOf<S, Root> = S extends { readonly prefixItems: infer P extends readonly unknown[] }
  ? [...Each<P, Root>, ...(S extends { readonly items: false } ? [] : Rest<S, Root>[])]
  : S extends { readonly items: infer P extends readonly unknown[] }
    ? [...Each<P, Root>, ...JsonValue[]]
    : Rest<S, Root>[];

type Rest<S, Root> = S extends { readonly items: infer I } ? FromSchema<I, Root> : JsonValue;

type Each<P extends readonly unknown[], Root> = { -readonly [K in keyof P]: FromSchema<P[K], Root> };

type ObjectOf<S, Root> = S extends { readonly properties: infer P }
  ? Flat<
      { -readonly [K in keyof P as K extends RequiredName<S> ? K : never]: FromSchema<P[K], Root> } & {
        -readonly [K in keyof P as K extends RequiredName<S> ? never : K]?: FromSchema<P[K], Root>;
      }
    >
  : S extends { readonly additionalProperties: infer A }
    ? { [name: string]: A extends boolean ? JsonValue : FromSchema<A, Root> }
    : JsonObject;

type RequiredName<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;

type OneOf<B extends readonly unknown[], Root> = B[number] extends infer Branch
  ? Branch extends unknown
    ? FromSchema<Branch, Root>
    : never
  : never;

type AllOf<B extends readonly unknown[], Root> = B extends readonly [infer First, ...infer Others]
  ? FromSchema<First, Root> & AllOf<Others, Root>
  : unknown;

/** What stands beside a combination narrows it, if it says anything about the shape. */
type Beside<S, K extends string, Root> = S extends { readonly type: unknown } | { readonly properties: unknown }
  ? FromSchema<Omit<S, K>, Root>
  : unknown;

type Target<Root, R extends string> = R extends "#"
  ? Root
  : R extends `#/$defs/${infer Name}`
    ? Root extends { readonly $defs: infer D }
      ? Member<D, Name>
      : true
    : R extends `#/definitions/${infer Name}`
      ? Root extends { readonly definitions: infer D }
        ? Member<D, Name>
        : true
      : true;

type Member<D, Name extends string> = Name extends keyof D ? D[Name] : true;

/** Shows a computed object type as if it had been written down. */
export type Flat<T> = { [K in keyof T]: T[K] } & {};

// Cedar's extension functions and methods, each with its number of arguments.

import { DateTime, Decimal, Duration, IpAddress } from "./value/extensions.js";
import { EvaluationError, typeName, type Value } from "./value/value.js";

interface ExtensionCall {
  readonly arity: number;
  readonly result: "bool" | "other";
  readonly run: (args: readonly Value[]) => Value;
}

type Class<T> = abstract new (...args: never[]) => T;

function as<T>(type: Class<T>, value: Value | undefined): T {
  if (value instanceof type) return value;
  const found = value === undefined ? "nothing" : typeName(value);
  throw new EvaluationError(`expected a ${type.name.toLowerCase()}, found ${found}`);
}

function construct<T extends Value>(name: string, parse: (text: string) => T | undefined): ExtensionCall {
  return {
    arity: 1,
    result: "other",
    run: ([text]) => {
      if (typeof text !== "string")
        throw new EvaluationError(`${name}() takes a string, found ${typeName(text ?? false)}`);
      const value = parse(text);
      if (value === undefined) throw new EvaluationError(`${JSON.stringify(text.slice(0, 80))} is not a valid ${name}`);
      return value;
    },
  };
}

function compareDecimals(test: (a: Decimal["scaled"], b: Decimal["scaled"]) => boolean): ExtensionCall {
  return { arity: 2, result: "bool", run: ([a, b]) => test(as(Decimal, a).scaled, as(Decimal, b).scaled) };
}

function askIp(test: (ip: IpAddress) => boolean): ExtensionCall {
  return { arity: 1, result: "bool", run: ([ip]) => test(as(IpAddress, ip)) };
}

function measure(unitMs: number): ExtensionCall {
  return { arity: 1, result: "other", run: ([duration]) => as(Duration, duration).in(unitMs) };
}

function inRange<T>(value: T | undefined): T {
  if (value === undefined) throw new EvaluationError("the date or duration does not fit 64 bits");
  return value;
}

export const EXTENSION_CALLS: ReadonlyMap<string, ExtensionCall> = new Map<string, ExtensionCall>([
  ["decimal", construct("decimal", Decimal.parse)],
  ["lessThan", compareDecimals((a, b) => a < b)],
  ["lessThanOrEqual", compareDecimals((a, b) => a <= b)],
  ["greaterThan", compareDecimals((a, b) => a > b)],
  ["greaterThanOrEqual", compareDecimals((a, b) => a >= b)],
  ["ip", construct("ip", IpAddress.parse)],
  ["isIpv4", askIp((ip) => ip.version === 4)],
  ["isIpv6", askIp((ip) => ip.version === 6)],
  ["isLoopback", askIp((ip) => ip.isLoopback)],
  ["isMulticast", askIp((ip) => ip.isMulticast)],
  [
    "isInRange",
    {
      arity: 2,
      result: "bool",
      run: ([ip, range]) => as(IpAddress, ip).isIn(as(IpAddress, range)),
    },
  ],
  ["datetime", construct("datetime", DateTime.parse)],
  ["duration", construct("duration", Duration.parse)],
  ["offset", { arity: 2, result: "other", run: ([at, by]) => inRange(as(DateTime, at).offset(as(Duration, by))) }],
  [
    "durationSince",
    { arity: 2, result: "other", run: ([at, from]) => inRange(as(DateTime, at).since(as(DateTime, from))) },
  ],
  ["toDate", { arity: 1, result: "other", run: ([at]) => inRange(as(DateTime, at).toDate()) }],
  ["toTime", { arity: 1, result: "other", run: ([at]) => as(DateTime, at).toTime() }],
  ["toMilliseconds", measure(1)],
  ["toSeconds", measure(1000)],
  ["toMinutes", measure(60_000)],
  ["toHours", measure(3_600_000)],
  ["toDays", measure(86_400_000)],
]);

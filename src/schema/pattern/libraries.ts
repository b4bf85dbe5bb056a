// The parser of regular expressions and the sets of characters. Both are CommonJS, refa of 1 MB: they are loaded with the
// first pattern, because most processes see none, and by `require`, because `import` parses CommonJS once more.

import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
let loaded: { readonly refa: typeof import("refa"); readonly regexpp: typeof import("@eslint-community/regexpp") };

/** `patternLibraries` returns both libraries; the first call loads them. */
export function patternLibraries(): typeof loaded {
  loaded ??= {
    refa: require("refa") as typeof import("refa"),
    regexpp: require("@eslint-community/regexpp") as typeof import("@eslint-community/regexpp"),
  };
  return loaded;
}

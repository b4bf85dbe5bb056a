import type { ProfileName } from "../policy/document.js";
import { make, npm, tar } from "./build.js";
import { curl } from "./curl.js";
import { git } from "./git.js";
import type { Profile } from "./grammar.js";
import { awk, cat, find, grep, jq, ls, rg, sed } from "./search.js";

export const profiles: Readonly<Record<ProfileName, Profile>> = {
  awk,
  cat,
  curl,
  find,
  git,
  grep,
  jq,
  ls,
  make,
  npm,
  rg,
  sed,
  tar,
};

export { type ArgumentProblem, type Arranged, isProblem, type Profile } from "./grammar.js";

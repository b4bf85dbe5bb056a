import type { ProfileName } from "../policy/document.js";
import { make, npm } from "./build.js";
import { curl } from "./curl.js";
import { find } from "./find.js";
import { git } from "./git.js";
import type { Profile } from "./profile.js";
import { cat, grep, jq, ls, rg } from "./search.js";
import { tar } from "./tar.js";
import { awk, sed } from "./text.js";

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

export { type Arranged, type ArgumentProblem, isProblem, type Profile } from "./profile.js";

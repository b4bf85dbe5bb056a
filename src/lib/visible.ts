// Text from a caller, made safe to display: what would not show, would reorder the line or would end it
// is written as an escape.

/** Controls, formats (bidirectional marks, joiners, tags), separators, lone surrogates, private and unassigned code
 * points, fillers and selectors that draw nothing, and every space but the plain one. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;
/** Most text is plain: this test is cheaper than the replacement. */
const PLAIN = /^[\x20-\x7e]*$/;

/**
 * The escapes are those of JSON, and a JSON text has such characters in its strings alone: the result of a JSON text is
 * a JSON text that means the same.
 */
export function visible(text: string): string {
  return PLAIN.test(text) ? text : text.replace(UNSEEN, escapeUnits);
}

function escapeUnits(character: string): string {
  let out = "";
  for (let i = 0; i < character.length; i++) out += `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  return out;
}
